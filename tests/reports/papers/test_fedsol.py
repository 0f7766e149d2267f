"""The FedSoL paper's artefacts: all there, with the printed rows and columns, and the runs of the shipped recipes."""

from __future__ import annotations

import pytest

from reports.artefact import Facts, Grid, Layout, NotReproduced
from reports.artefacts.plan import plan_paper, select_runs
from reports.artefacts.scales import SCALES
from reports.papers.fedsol.paper import PAPER
from tests.reports.papers.declared import count_series, find_missing, list_undeclared, list_unmeasured, read_cell
from training import config

RECIPES = (
    "fedsol_cinic10",
    "fedsol_pathmnist",
    "fedsol_tissuemnist",
    "fedsol_cifar10",
    "fedsol_cifar10_adaptive",
    "fedsol_cifar10_networks",
    "fedsol_cifar10_personal",
    "fedsol_cifar10_proximal",
    "fedsol_mechanism",
    "fedsol_svhn",
    "fedsol_svhn_networks",
    "fedsol_svhn_personal",
    "fedsol_svhn_proximal",
)


def test_every_table_and_figure_is_there_in_order() -> None:
    assert PAPER.names == [*(f"table{n}" for n in range(1, 10)), *(f"figure{n}" for n in range(1, 11))]
    drawings = [one.name for one in PAPER.artefacts if isinstance(one.shape, NotReproduced)]
    assert drawings == ["table2", "figure1", "figure5"]


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [("table1", 16, 7), ("table5", 11, 3), ("table6", 7, 1), ("table7", 5, 6), ("table8", 3, 6), ("table9", 12, 3)],
)
def test_tables_have_the_printed_shape_and_a_cell_for_every_number(name: str, rows: int, columns: int) -> None:
    artefact = PAPER.find(name)
    assert isinstance(artefact.shape, Grid)
    assert (len(artefact.shape.rows), len(artefact.shape.columns)) == (rows, columns)
    assert find_missing(PAPER, artefact) == []


@pytest.mark.parametrize("name", RECIPES)
def test_runs_of_shipped_recipes_are_among_the_declared(name: str) -> None:
    assert list_undeclared(PAPER, {name: ()}) == []


def test_partial_perturbations_are_those_of_the_recipe() -> None:
    # "all" is the default part, which Table 8 leaves to the method
    assert list_undeclared(PAPER, {"fedsol_cifar10_partial": ()}) == []


def test_combinations_are_those_of_the_recipe() -> None:
    # A0 and A1 are declared as FedAvg and FedSoL, which other tables have as well
    lacking = list_undeclared(PAPER, {"fedsol_cifar10_combinations": ()})
    assert len(lacking) == 1
    assert "'A0'" in lacking[0]
    zero = read_cell(PAPER, "table6", "A0", "cifar10 lda alpha=0.1")
    assert zero == read_cell(PAPER, "table1", "FedAvg", "cifar10 lda alpha=0.1")


def test_settings_say_what_runs_take() -> None:
    shape = PAPER.find("table4").shape
    assert isinstance(shape, Facts)
    assert {row[0]: row[1] for row in shape.rows}["FedNTD"] == "β = 1.0, τ = 1.0"
    assert {row[0]: row[2] for row in shape.rows}["MOON"] == "μ in 0.1, 0.5; τ in 0.5, 1.0"
    sizes = PAPER.find("table3").shape
    assert isinstance(sizes, Facts)
    assert ("CINIC-10", "200", "300", "0.05") in sizes.rows


def test_rows_of_table_5_read_different_answers() -> None:
    shape = PAPER.find("table5").shape
    assert isinstance(shape, Grid)
    quantities = {row.key or row.label: row.quantity for row in shape.rows}
    assert all(one is not None and one.spread == "clients" for one in quantities.values())
    names = {key: one.name for key, one in quantities.items() if one is not None}
    assert len({names[key] for key in ("FedAvg e=1", "FedAvg e=5", "kNN-Per e=1", "kNN-Per e=5", "Local-only")}) == 5
    assert names["FedSoL-FT e=5"] == names["FedAvg e=5"]  # the same measure of another run


def test_without_a_radius_all_parts_are_fedavg() -> None:
    where = "cifar10 lda alpha=0.1 rho=0.0"
    rows = ("All (full)", "Body (partial)", "Head (partial)")
    assert all(read_cell(PAPER, "table8", row, where)["algorithm"] == {"name": "fedavg"} for row in rows)
    head = read_cell(PAPER, "table8", "Head (partial)", "cifar10 lda alpha=0.1 rho=1.5")["algorithm"]
    assert head == {"name": "fedsol", "rho": 1.5, "part": "head"}


def test_figures_share_the_runs_of_tables() -> None:
    digits = SCALES["digits"]
    curves = set(select_runs(PAPER, [PAPER.find("figure7")], digits))
    assert curves <= set(select_runs(PAPER, [PAPER.find("table1")], digits))
    panels = {name: count_series(PAPER.find(name)) for name in ("figure2", "figure3", "figure4", "figure8")}
    assert panels == {"figure2": [8, 8, 8, 5], "figure3": [2, 2], "figure4": [1, 1, 1], "figure8": [8, 1]}


@pytest.mark.parametrize("name", ["digits", "small"])
def test_smaller_recipes_are_valid(name: str) -> None:
    for one in plan_paper(PAPER, SCALES[name]).values():
        recipe = config.validate(one.content)
        rounds = {question.at(name).get("rounds", "last") for question in one.questions.values()}
        for round in (int(some) for some in rounds if str(some).isdigit()):
            assert round % recipe.checkpoints.every == 0 or round == recipe.rounds.count
            assert round <= recipe.rounds.count


def test_panels_read_what_is_asked() -> None:
    assert list_unmeasured(PAPER) == []


def test_the_better_of_base_and_combined_is_marked() -> None:
    shape = PAPER.find("table7").shape
    assert isinstance(shape, Grid)
    assert shape.paired
    assert shape.arrows


def test_the_adaptive_radius_is_shown_by_layer() -> None:
    """Weight and bias together, at two thirds of the rounds, as the paper has it."""
    shape = PAPER.find("figure8").shape
    assert isinstance(shape, Layout)
    options = shape.panels[1].options
    assert (options["variable"], options["joined"], options["at"]) == ("adaptive", True, 200 / 300)


def test_sl_vit_is_the_real_one_at_every_scale() -> None:
    for scale in SCALES.values():
        runs = plan_paper(PAPER, scale).values()
        found = {one.content["model"]["name"] for one in runs} - {"digits_cnn", "mlp", "fedavg_net"}
        assert "sl_vit" in found, scale.name
        assert not any(name.startswith("vit") for name in found), scale.name
