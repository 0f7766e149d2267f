"""FedVSSAM: its two levels of heterogeneity, its ablation, and what its mechanism is measured on."""

from __future__ import annotations

import pytest

from reports.artefact import Layout, list_cells
from reports.artefacts.scales import SCALES
from reports.papers.fedvssam.paper import PAPER
from tests.reports.papers.declared import list_undeclared
from tests.reports.papers.lookups import find_cell, list_wanted

RECIPES = ("fedvssam_cifar10", "fedvssam_cifar100", "fedvssam_cifar10_ablation", "fedvssam_dbpedia14")


def test_runs_are_those_of_the_recipes() -> None:
    assert list_undeclared(PAPER, dict.fromkeys(RECIPES, ())) == []


def test_fedvssam_mixes_by_the_level_of_heterogeneity() -> None:
    for column, a in (
        ("cifar10 dirichlet moderate", 0.2),
        ("cifar10 pathological severe", 0.1),
        ("cifar100 pathological moderate", 0.2),
        ("cifar100 dirichlet severe", 0.1),
    ):
        assert find_cell(PAPER, "table1", "N=200: FedVSSAM", f"{column} rounds").settings["algorithm.a"] == a
    assert (
        "algorithm.a" not in find_cell(PAPER, "table1", "N=100: FedSAM", "cifar10 dirichlet severe accuracy").settings
    )


def test_the_second_block_has_more_clients() -> None:
    assert len(list(list_cells(PAPER, PAPER.find("table1")))) == 2 * 13 * 16
    row = find_cell(PAPER, "table1", "N=200: FedAvg", "cifar100 pathological severe accuracy")
    assert (row.settings["partition.clients"], row.settings["partition.classes_per_client"]) == (200, 10)
    assert (row.settings["model.name"], row.settings["local.batch_size"]) == ("wrn28_4", 20)
    assert len(list_wanted(PAPER, "table1")) == 2 * 13 * 8 * 3


def test_the_ablation_turns_on_one_operation_at_a_time() -> None:
    shape = PAPER.find("figure3").shape
    assert isinstance(shape, Layout)
    (panel,) = shape.panels
    switches = [tuple(one.settings.get(f"algorithm.{key}", True) for key in ("lf", "lu", "gu")) for one in panel.series]
    assert [sum(one) for one in switches] == [0, 1, 1, 1, 3]
    assert len(set(switches)) == 5
    assert [one.label for one in panel.series] == ["FedVSSAM-base", "LF", "LU", "GU", "FedVSSAM"]


def test_the_mechanism_is_measured_every_80_rounds() -> None:
    for name in ("figure6", "figure7", "figure8"):
        for one in list_wanted(PAPER, name):
            assert one.content["checkpoints"]["every"] == 80
    tracked = list_wanted(PAPER, "figure7")
    assert {one.content["partition"]["beta"] for one in tracked} == {0.6, 0.1}
    assert {one.key for one in tracked} == {one.key for one in list_wanted(PAPER, "figure8")}
    assert {one.key for one in tracked} < {one.key for one in list_wanted(PAPER, "table1")}


def test_sweeps_vary_one_setting_and_share_the_usual_run() -> None:
    usual = {one.key for one in list_wanted(PAPER, "figure7") if one.content["partition"]["beta"] == 0.1}
    swept = {one.key for one in list_wanted(PAPER, "figure9")}
    assert usual < swept
    assert len(swept) == (1 + 4 + 4 + 3 + 3) * 3


@pytest.mark.parametrize("scale", SCALES)
def test_features_are_measured_halfway_at_every_scale(scale: str) -> None:
    for one in list_wanted(PAPER, "figure6", scale):
        (question,) = one.questions.values()
        count, every = one.content["rounds"]["count"], one.content["checkpoints"]["every"]
        apart = int(str(question.at(scale)["rounds"]).removeprefix("every "))
        measured = [place for place in range(every, count, every) if place % apart == 0]
        assert min((abs(place / count - 0.5) for place in measured), default=1.0) < 0.05
