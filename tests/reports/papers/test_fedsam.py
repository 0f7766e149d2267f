"""The FedSAM paper's artefacts: all there, with the printed rows and columns, and the runs of the shipped recipes."""

from __future__ import annotations

import pytest

from reports.artefact import Facts, Grid
from reports.artefacts.plan import list_comparisons, plan_paper, select_runs
from reports.artefacts.scales import SCALES
from reports.papers.fedsam.paper import PAPER
from reports.tables.published import read_printed
from tests.reports.papers.declared import count_series, find_missing, list_undeclared, list_unmeasured, read_cell
from training import config

CROP = "padding=4, flip=true"
RECIPES = {
    "fedsam_cifar10": (),
    "fedsam_cifar100": (),
    "fedsam_cifar100_one_class": (),
    "fedsam_cifar10_homogeneous": (),
    "fedsam_cifar10_two_epochs": ("rounds.participants=20",),
    "fedsam_cifar100_two_epochs": (),
    "fedsam_cifar100_pachinko": ("rounds.participants=20",),
    "fedsam_cifar100_pachinko_mixup": (),
    "fedsam_cifar100_sota": (),
    "fedsam_cifar10_sota": ("rounds.participants=20",),
    "fedsam_cifar100_swa": (),
    "fedsam_cifar10_swa": (),
    "fedsam_landmarks": (),
    "fedsam_cityscapes": (),
    "fedsam_idda": (),
}
CHANGED = {
    "fedsam_cifar10": (f"sweep.augment=[{{{CROP}, mixup=1.0}}, {{{CROP}, cutout=16}}]",),  # Table 17
    "fedsam_cifar100": (f"sweep.augment=[{{{CROP}, mixup=1.0}}, {{{CROP}, cutout=8}}]", "rounds.participants=10"),
    "fedsam_cifar100_one_class": ("sweep.swa=[{cycle = 1}]",),  # Table 14
}


def test_every_table_and_figure_is_there_in_order() -> None:
    assert PAPER.names == [*(f"table{n}" for n in range(1, 18)), *(f"figure{n}" for n in range(1, 17))]


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [
        ("table1", 7, 4),
        ("table2", 14, 9),
        ("table3", 9, 12),
        ("table4", 12, 9),
        ("table5", 8, 6),
        ("table6", 26, 8),
        ("table7", 4, 3),
        ("table8", 15, 5),
        ("table13", 12, 2),
        ("table14", 24, 9),
        ("table15", 8, 3),
        ("table16", 7, 9),
        ("table17", 18, 9),
    ],
)
def test_tables_have_the_printed_shape_and_a_cell_for_every_number(name: str, rows: int, columns: int) -> None:
    artefact = PAPER.find(name)
    assert isinstance(artefact.shape, Grid)
    assert (len(artefact.shape.rows), len(artefact.shape.columns)) == (rows, columns)
    assert find_missing(PAPER, artefact) == []


def test_sizes_are_the_printed_ones() -> None:
    shape = PAPER.find("table9").shape
    assert isinstance(shape, Facts)
    said = {row[0].lower(): dict(zip(shape.headings, row, strict=True)) for row in shape.rows}
    printed = read_printed("fedsam/table9")
    for (row, column), one in printed.items():
        assert said[row][column.capitalize()] == f"{one.value:,.0f}"
    assert len(said) == 10


@pytest.mark.parametrize("recipes", [RECIPES, CHANGED])
def test_runs_of_shipped_recipes_are_among_the_declared(recipes: dict[str, tuple[str, ...]]) -> None:
    assert list_undeclared(PAPER, recipes) == []


def test_the_servers_of_table_13_are_those_of_the_recipe() -> None:
    assert list_undeclared(PAPER, {"fedsam_cifar100_servers": ()}) == []


def test_centralised_runs_are_those_of_the_recipe() -> None:
    chosen = "sweep.algorithm=[{name = 'fedavg'}, {name = 'fedsam', rho = 0.05}]"
    overrides = ("data={name = 'cifar100'}", chosen)
    assert list_undeclared(PAPER, {"cifar10_centralised": overrides}) == []


def test_radii_follow_data_set_and_split() -> None:
    tuned = {
        "cifar10 alpha=0 K=5": 0.7,
        "cifar10 alpha=100 K=20": 0.05,
        "cifar100 alpha=0.5 K=10": 0.5,
    }
    for column, rho in tuned.items():
        algorithm = read_cell(PAPER, "table2", "FedASAM + SWA", column)["algorithm"]
        assert algorithm == {"name": "fedasam", "rho": rho, "eta": 0.2}
    found = read_cell(PAPER, "table6", "FedDyn + SAM", "cifar10 alpha=0.05 K=20 w/ SWA")
    assert found["algorithm"] == {"name": "feddyn+sam", "alpha": 0.01, "rho": 0.1}
    assert (found["local.clip"], found["rounds.participants"]) == (10.0, 20)


def test_mixup_on_superclasses_takes_the_other_eta() -> None:
    where = "cifar100-pam resnet18 E=2 K=20 w/ SWA"
    mixed = read_cell(PAPER, "table3", "FedASAM (Mixup)", where)["algorithm"]
    assert mixed == {"name": "fedasam", "rho": 0.5, "eta": 0.0}
    assert read_cell(PAPER, "table3", "FedASAM (Cutout)", where)["algorithm"] == {**mixed, "eta": 0.2}


def test_plain_rows_of_table_14_need_no_runs_of_their_own() -> None:
    full = SCALES["full"]
    shared = set(select_runs(PAPER, [PAPER.find("table2")], full))
    parts = set(select_runs(PAPER, [PAPER.find("table14")], full))
    assert len(parts - shared) == 3 * 2 * 9  # averaging at a constant rate


def test_figures_have_the_printed_panels() -> None:
    panels = {name: count_series(PAPER.find(name)) for name in PAPER.names if name.startswith("figure")}
    assert panels["figure1"] == [1, 1, 1, 1]
    assert panels["figure2"] == [3, 3, 1, 1]
    assert panels["figure9"] == [3 * 6, 3 * 7, 3 * 4]
    assert panels["figure8"] == [6] * 6
    assert panels["figure16"] == [1] * 9


@pytest.mark.parametrize("scale", SCALES)
def test_planes_through_runs_have_three(scale: str) -> None:
    for name, count in (("figure2", 2), ("figure14", 4)):
        found = list_comparisons(PAPER, PAPER.find(name), SCALES[scale])
        assert [len(set(one.runs)) for one in found] == [3] * count


@pytest.mark.parametrize("name", ["digits", "small"])
def test_smaller_recipes_are_valid(name: str) -> None:
    for one in plan_paper(PAPER, SCALES[name]).values():
        recipe = config.validate(one.content)
        rounds = {q.at(name).get("rounds", "last") for q in one.questions.values()}
        for round in (int(part) for some in rounds if str(some)[0].isdigit() for part in str(some).split(",")):
            assert round % recipe.checkpoints.every == 0 or round == recipe.rounds.count
            assert round <= recipe.rounds.count
        if any(q.study == "plane" for q in one.questions.values()):
            assert recipe.rounds.participants >= 3


def test_panels_read_what_is_asked() -> None:
    assert list_unmeasured(PAPER) == []
