"""FedFSA: its radii, its personal measure, and runs that artefacts share."""

from __future__ import annotations

from reports.artefact import Layout, list_cells
from reports.papers.fedfsa.paper import PAPER
from tests.reports.papers.declared import list_undeclared
from tests.reports.papers.lookups import find_cell, list_wanted

RECIPES = (
    "fedfsa_cifar10",
    "fedfsa_cifar100",
    "fedfsa_fashion_mnist",
    "fedfsa_cifar10_duals",
    "fedfsa_cifar100_duals",
    "fedfsa_fashion_mnist_duals",
    "fedfsa_cifar10_selection",
    "fedfsa_cifar100_selection",
    "fedfsa_resnet18",
    "fedfsa_tiny_imagenet",
    "fedfsa_tiny_imagenet_duals",
)


def test_runs_are_those_of_the_recipes() -> None:
    """But for the ranking of equation 11 as it is written, and two runs of recipes that nothing in the paper shows."""
    own = {"fedfsa_resnet18": ["rounds.statistics='own'"]}
    left = list_undeclared(PAPER, {name: own.get(name, []) for name in RECIPES})
    other = [one for one in left if "'measure': 'square'" not in one]
    assert [one.partition(":")[0] for one in other] == ["fedfsa_cifar100", "fedfsa_resnet18"]
    assert "'a': 1.0" in other[0]  # FedSAM with FSA is shown under Dir(0.3) only
    assert "mofedsam" in other[1]  # on ResNet18 it is shown on CIFAR100 only


def test_radii_depend_on_the_data_set() -> None:
    for column, radii in (("fmnist dir beta=0.5", (0.1, 0.2)), ("cifar100 pat s=15", (0.05, 0.9))):
        settings = find_cell(PAPER, "table1", "FedFSA", column).settings
        assert (settings["algorithm.rho"], settings["algorithm.rho_larger"]) == radii
    sam = find_cell(PAPER, "table1", "FedSAM", "cifar100 pat s=15").settings
    assert (sam["algorithm.rho"], "algorithm.rho_larger" in sam) == (0.05, False)
    assert find_cell(PAPER, "table1", "FedAvg-FT", "fmnist pat s=5").settings["rounds.count"] == 250


def test_every_round_tests_the_clients_own_models() -> None:
    for name in ("table1", "table2", "figure3", "figure4", "figure5"):
        for one in list_wanted(PAPER, name):
            assert one.content["evaluation"]["personal"] is True
            assert one.content["evaluation"]["every"] == 1
            assert one.content["data"]["pooled"] is True


def test_fewer_clients_have_fewer_participants() -> None:
    half = find_cell(PAPER, "table2", "FedAvg-FT", "tiny dir beta=0.3 N=50").settings
    assert (half["partition.clients"], half["rounds.participants"]) == (50, 5)


def test_fsa_is_put_into_five_methods() -> None:
    shape = PAPER.find("figure3").shape
    assert isinstance(shape, Layout)
    bars = shape.panels[0].series
    assert [one.group for one in bars[::2]] == ["FedAvg-FT", "FedALA", "FedSAM", "MoFedSAM", "FedSpeed"]
    assert bars[1].settings == bars[7].settings  # FedFSA is FedAvg-FT and MoFedSAM with FSA, as the paper has it
    cells = [one for one in list_cells(PAPER, PAPER.find("figure3")) if one.row.label == "with FSA"]
    assert {one.settings.get("algorithm.rho_larger") for one in cells} == {0.9}


def test_the_usual_choice_of_layers_is_the_run_of_the_tables() -> None:
    shared = {one.key for one in list_wanted(PAPER, "figure5")} & {one.key for one in list_wanted(PAPER, "table1")}
    assert len(shared) == 3  # CIFAR100, CNN, Dir(0.3): one a seed
    deep = {one.key for one in list_wanted(PAPER, "figure5")} & {one.key for one in list_wanted(PAPER, "figure3")}
    assert len(deep) == 3 + 3  # and ResNet18 on CIFAR100
