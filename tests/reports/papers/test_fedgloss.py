"""FedGloSS: settings of cells looked up in the paper."""

from __future__ import annotations

import math

from reports.artefact import Facts
from reports.papers.fedgloss.paper import PAPER
from tests.reports.papers.declared import list_undeclared
from tests.reports.papers.lookups import find_cell, list_wanted

RECIPES = (
    "fedgloss_cifar10",
    "fedgloss_cifar100",
    "fedgloss_cifar10_resnet18",
    "fedgloss_cifar100_resnet18",
    "fedgloss_cifar10_homogeneous",
    "fedgloss_cifar100_homogeneous",
    "fedgloss_landmarks",
)


def test_runs_are_those_of_the_recipes() -> None:
    """But for rho_s = 0.5 with SGD clients, the other reading of Table 13 that the recipe offers."""
    left = list_undeclared(PAPER, dict.fromkeys(RECIPES, ()))
    assert [("'rho_s': 0.5" in one, "fedgloss+none" in one) for one in left] == [(True, True)]


def find_settings(name: str, row: str, column: str) -> dict[str, object]:
    """Find the settings of a cell."""
    return find_cell(PAPER, name, row, column).settings


def test_methods_are_tuned_for_each_data_set_and_model() -> None:
    small = find_settings("table3", "FedGloSS (SAM)", "cnn cifar10 alpha=0.05")
    tuned = {key: small[f"algorithm.{key}"] for key in ("name", "rho_s", "rho", "beta", "warmup")}
    assert tuned == {"name": "fedgloss", "rho_s": 0.15, "rho": 0.15, "beta": 10.0, "warmup": 2000}
    large = find_settings("table3", "FedSMOO (SAM)", "resnet18 cifar10 alpha=0.05")
    assert (large["algorithm.rho"], large["algorithm.beta"]) == (0.01, 5.0)
    assert (large["local.momentum"], large["local.weight_decay"], large["rounds.participants"]) == (0.7, 1e-5, 10)
    assert find_settings("table3", "FedAvg (SGD)", "cnn cifar100 alpha=0.5")["rounds.count"] == 20000


def test_without_admm_beta_is_infinite() -> None:
    column = "cnn cifar100 alpha=1000 lambda1"
    without = find_settings("table9", "FedGloSS (SAM) without ADMM", column)
    with_duals = find_settings("table9", "FedGloSS (SAM) with ADMM", column)
    assert (without["algorithm.beta"], with_duals["algorithm.beta"]) == (math.inf, 100.0)
    assert without["partition.alpha"] == 1000.0


def test_levels_of_the_naive_comparison_differ_between_data_sets() -> None:
    for data, alpha in (("cifar10", 0.05), ("cifar100", 0.5)):
        settings = find_settings("table6", "α=0.05 / 0.5: FedGloSS", f"{data} lambda1")
        assert (settings["partition.alpha"], settings["data.name"]) == (alpha, data)
    central = find_settings("table6", "Centralized SAM~", "cifar100 acc@100%")
    assert central["partition"] == {"name": "iid", "clients": 1}
    assert (central["algorithm.name"], central["algorithm.rho"]) == ("fedsam-previous", 0.01)
    assert "partition.alpha" not in central


def test_tables_of_accuracy_speed_and_sharpness_share_their_runs() -> None:
    runs = {name: {one.key for one in list_wanted(PAPER, name)} for name in ("table3", "table5", "table8", "figure15")}
    assert len(runs["table3"]) == 11 * 6 * 3
    people = {one.key for one in list_wanted(PAPER, "table4")}  # Landmarks, where Table 5 has two rows more
    assert len(people) == 9 * 3
    assert len(runs["table5"] - runs["table3"]) == 11 * 3
    assert people < runs["table5"] - runs["table3"]
    assert runs["table8"] < runs["table3"]
    assert len(runs["figure15"] - runs["table3"]) == (2 + 2) * 3  # FedSMOO + wp twice, centralised SGD and SAM


def test_runs_keep_what_tables_and_figures_read() -> None:
    for one in list_wanted(PAPER, "table5"):
        assert one.content["evaluation"]["every"] == 1
    for one in list_wanted(PAPER, "figure4"):
        assert one.content["record"] == ["delta_epsilon"]
    for one in list_wanted(PAPER, "table1"):
        assert one.content["checkpoints"]["keep_locals"] == "last"
    for one in list_wanted(PAPER, "figure8"):
        assert one.content["checkpoints"]["keep_locals"] == "none"  # a ResNet18 a participant


def test_the_grid_of_values_holds_each_chosen_one_once() -> None:
    shape = PAPER.find("table13").shape
    assert isinstance(shape, Facts)
    for row in shape.rows:
        assert all(text.count("[") == 1 for text in row[2:]), row
    assert shape.rows[-1][:4] == ("FedGloSS", "T_s", "1000, [2000], 4000", "[0]")
