"""Bold only where the difference exceeds its error; numbers from a subset say so."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from analysis.store import Answer
from reports.inputs.runs import Collection, read_runs
from reports.plotting.measured import describe_measurement, find_answers
from reports.quantities.measures import MEASURES
from reports.tables.catalog import make_tables
from reports.tables.numbers import format_short
from reports.tables.table import Cell, Column, Line, format_cell, rank_cells
from reports.tables.table import Table as Typeset
from tests.reports.conftest import make_run
from tests.reports.results import curvature
from tests.reports.results.answers import make_answer, write_answer


def table(cells: list[Cell], better: str = "higher", bold: str = "clear", chance: float = math.nan) -> Typeset:
    lines = tuple(Line(str(place), (), (cell,)) for place, cell in enumerate(cells))
    return Typeset("t", "good", "T", "R.", "method", (Column("x", better=better, chance=chance),), lines, bold=bold)


def test_the_best_is_bold_where_it_is_clear_of_the_others() -> None:
    clear = [Cell(90.0, 1.0, 4), Cell(80.0, 1.0, 4), Cell(70.0, 1.0, 4)]  # standard errors of 0.5
    assert rank_cells(table(clear)) == {(0, 0): 1, (1, 0): 2}
    near = [Cell(90.0, 1.0, 4), Cell(89.0, 1.0, 4), Cell(70.0, 1.0, 4)]  # 1.0 apart, two errors are 1.41
    assert rank_cells(table(near)) == {}
    assert rank_cells(table(near, bold="plain")) == {(0, 0): 1, (1, 0): 2}
    assert rank_cells(table([Cell(1.0, 0.1, 4), Cell(2.0, 0.1, 4)], "lower")) == {(0, 0): 1}


def test_one_seed_without_an_error_is_never_bold() -> None:
    assert rank_cells(table([Cell(90.0, seeds=1), Cell(10.0, seeds=1)])) == {}
    assert rank_cells(table([Cell(90.0, 1.0, 4), Cell(10.0, seeds=1)])) == {}


def test_an_error_from_a_subset_counts() -> None:
    far, near = ([Cell(122.0, seeds=1, error=error), Cell(134.0, seeds=1, error=error)] for error in (3.0, 6.0))
    assert rank_cells(table(far, "lower")) == {(0, 0): 1}
    assert rank_cells(table(near, "lower")) == {}
    both = Cell(122.0, 8.0, 4, error=3.0)
    assert both.doubt == pytest.approx(5.0)  # sqrt((8 / 2)^2 + 3^2)


def test_nothing_is_bold_at_chance_level() -> None:
    cells = [Cell(10.9, 0.1, 4), Cell(9.0, 0.1, 4)]
    assert rank_cells(table(cells)) == {(0, 0): 1}
    for bold in ("clear", "plain"):
        assert rank_cells(table(cells, chance=10.0, bold=bold)) == {}
        assert rank_cells(table([Cell(60.0, 1.0, 4), Cell(10.0, 1.0, 4)], chance=10.0, bold=bold)) == {(0, 0): 1}


def test_an_unknown_rule_is_named(collection: Collection) -> None:
    with pytest.raises(ValueError, match="bold must be one of clear, plain; got 'fat'"):
        make_tables(collection, bold="fat")


def subsetted(scale: float, *, error: bool = True, population: bool = True) -> Answer:
    """λ1 on 300 of 60,000 examples."""
    found = curvature.stored(scale)
    data = found.data.assign_attrs({"examples": 300, "population": 60_000} if population else {})
    if error:
        data["eigenvalue_standard_error"] = scale * data["eigenvalue"] * 0.1
    return make_answer("curvature", data, **{**found.settings, "limit": 300})


def read(folder: Path, **how: bool) -> Collection:
    runs = [
        make_run(folder / name, name, scale=scale, studies=()) for name, scale in (("fedavg", 1.0), ("fedsam", 0.9))
    ]
    for run, scale in zip(runs, (1.0, 0.9), strict=True):
        write_answer(run, subsetted(scale, **how))
    return read_runs(runs)


def test_n_and_standard_error_stand_beside_the_number(tmp_path: Path) -> None:
    found = read(tmp_path)
    (sharp,) = [one for one in make_tables(found) if one.name == "sharpness"]
    assert format_cell(sharp.lines[0].cells[0], sharp.columns[0]) == "30.0 (n = 300, SE 3)"
    assert rank_cells(sharp) == {}  # 27 against 30, with errors of 3: nothing is set bold
    assert any("300 of 60000 examples" in one for one in sharp.footnotes)
    assert describe_measurement(find_answers(found.runs, "curvature"))[0] == "300 of 60000 examples"


def test_without_a_record_the_setting_says_it(tmp_path: Path) -> None:
    found = read(tmp_path, error=False, population=False)
    (sharp,) = [one for one in make_tables(found) if one.name == "sharpness"]
    assert format_cell(sharp.lines[0].cells[0], sharp.columns[0]) == "30.0 (n = 300)"
    assert any("at most 300 examples" in one for one in sharp.footnotes)


def test_flatness_of_a_model_that_guesses_is_not_the_best(tmp_path: Path) -> None:
    """λ1 is low where nothing was learned."""
    paths = [
        make_run(tmp_path / f"{name}{seed}", name, seed=seed, studies=())
        for name in ("fedavg", "fedsam")
        for seed in (0, 1)
    ]
    for path, scale in zip(paths, (1.0, 1.01, 0.01, 0.02), strict=True):
        write_answer(path, curvature.stored(scale))
    found = read_runs(paths)
    for run in found.runs[2:]:
        for record in run.metrics:
            record["accuracy"] = 1 / 3
    for run in found.runs[:2]:
        for record in run.metrics:
            record["accuracy"] = 0.9
    (sharp,) = [one for one in make_tables(found) if one.name == "sharpness"]
    assert sharp.lines[1].cells[0].mean < sharp.lines[0].cells[0].mean
    assert rank_cells(sharp) == {}
    assert MEASURES["accuracy"].find(found.runs[2]) == pytest.approx(found.runs[2].chance)


@pytest.mark.parametrize(
    ("mean", "text"), [(26.0, "26.0"), (3.0, "3.00"), (0.00455, "0.00455"), (0.000108, "1.08×10⁻⁴"), (0.0, "0.00")]
)
def test_key_numbers_have_three_digits_also_where_these_are_zeros(mean: float, text: str) -> None:
    assert format_short(Cell(mean), Column("x")) == text
