"""Tables in the papers' shape: every number against one computed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from reports.artefact import Entry, Grid, get_key
from reports.inputs.progress import CROSS, DAGGER
from reports.inputs.runs import Run
from reports.inputs.subsets import Subset
from reports.quantities.catalog import ACCURACY, Quantity
from reports.tables.beside import combine_errors
from reports.tables.cells import NEVER
from reports.tables.grid import Find, make_grid
from reports.tables.published import Printed
from reports.tables.table import Cell, Table, format_cell, format_printed, rank_cells
from reports.tables.typeset import NO_BREAK, RENDERERS, render
from tests.reports.made_up import make_up

ONE = replace(ACCURACY, decimals=1)
TARGET = Quantity("rounds", "rounds", lambda run, _: run.metrics[0]["accuracy"], "lower", 1, "k", divisor=1000.0)
GAIN = Quantity(
    "gain",
    "gain (points)",
    lambda run, other: 100 * (run.metrics[-1]["accuracy"] - other.metrics[-1]["accuracy"]) if other else math.nan,
    "higher",
    2,
    signed=True,
    relative=True,
)


def rows(*groups: tuple[str, str]) -> tuple[Entry, ...]:
    return tuple(Entry(label, group=group) for group, labels in groups for label in labels.split())


def seeds(label: str, *ends: float, **how: object) -> list[Run]:
    return [make_up(label, [end], seed=seed, **how) for seed, end in enumerate(ends)]  # type: ignore[arg-type]


def finding(found: dict[str, list[Run]]) -> Find:
    return lambda row, column: found.get(row.label, [])


def texts(table: Table) -> list[list[str]]:
    return [
        [format_cell(cell, column) for cell, column in zip(line.cells, table.columns, strict=True)]
        for line in table.lines
    ]


def test_mean_and_spread_over_seeds_with_the_decimals_of_the_paper() -> None:
    grid = Grid(rows(("", "a b")), (Entry("x"), Entry("y", quantity=ONE)), ACCURACY)
    found = {"a": seeds("a", 0.5, 0.52, 0.54), "b": seeds("b", 0.6, 0.61, 0.62)}
    made = make_grid("t", "T", grid, finding(found))
    assert texts(made) == [["52.00 ± 2.00", "52.0 ± 2.0"], ["61.00 ± 1.00", "61.0 ± 1.0"]]
    assert "Means over 3 seeds; ± is the standard deviation over seeds." in made.note


def test_the_best_is_marked_within_each_block() -> None:
    found = {name: seeds(name, end, end + 0.01) for name, end in {"a": 0.5, "b": 0.6, "c": 0.8, "d": 0.9}.items()}
    grid = Grid(rows(("SGD", "a b"), ("SAM", "c d")), (Entry("x"),), ACCURACY, blocks=True)
    assert rank_cells(make_grid("t", "T", grid, finding(found))) == {(1, 0): 1, (3, 0): 1}
    whole = make_grid("t", "T", replace(grid, blocks=False), finding(found))
    assert rank_cells(whole) == {(3, 0): 1, (2, 0): 2}


def test_the_best_is_marked_along_rows_among_columns_of_one_label() -> None:
    columns = (Entry("own", group="A"), Entry("wide", group="A"), Entry("own", group="B"), Entry("wide", group="B"))
    ends = dict(zip(map(get_key, columns), (0.2, 0.5, 0.3, 0.9), strict=True))
    grid = Grid(rows(("", "a")), columns, ACCURACY, across=True)
    made = make_grid("t", "T", grid, lambda _, column: seeds("a", ends[get_key(column)], ends[get_key(column)] + 0.001))
    assert rank_cells(made) == {(0, 2): 1, (0, 3): 1}


def test_the_better_of_a_pair_of_columns_is_marked() -> None:
    columns = (Entry("own", group="A"), Entry("wide", group="A"), Entry("own", group="B"), Entry("wide", group="B"))
    ends = dict(zip(map(get_key, columns), (0.2, 0.5, 0.9, 0.3), strict=True))
    grid = Grid(rows(("", "a")), columns, ACCURACY, paired=True)
    made = make_grid("t", "T", grid, lambda _, column: seeds("a", ends[get_key(column)], ends[get_key(column)] + 0.001))
    assert rank_cells(made) == {(0, 1): 1, (0, 2): 1}
    assert made.note.endswith("Within each row and group of columns.")
    pointed = make_grid("t", "T", replace(grid, arrows=True), lambda _, column: seeds("a", ends[get_key(column)]))
    assert texts(pointed) == [["20.00", "50.00↑", "90.00", "30.00↓"]]


def test_bold_needs_a_difference_beyond_its_error_unless_plain() -> None:
    found = {"a": seeds("a", 0.5, 0.6), "b": seeds("b", 0.52, 0.62)}
    grid = Grid(rows(("", "a b")), (Entry("x"),), ACCURACY)
    assert rank_cells(make_grid("t", "T", grid, finding(found))) == {}
    assert rank_cells(make_grid("t", "T", grid, finding(found), bold="plain")) == {(1, 0): 1}
    with pytest.raises(ValueError, match="bold must be one of clear, plain; got 'fat'"):
        make_grid("t", "T", grid, finding(found), bold="fat")


def test_diverged_runs_are_crosses_and_unfinished_ones_have_a_dagger() -> None:
    found = {
        "a": seeds("a", 0.5, 0.6, state="diverged"),
        "b": seeds("b", 0.5, 0.6, state="unfinished", planned=9),
        "c": [*seeds("c", 0.5, 0.6), make_up("c", [0.9], seed=2, state="diverged")],
    }
    made = make_grid("t", "T", Grid(rows(("", "a b c")), (Entry("x"),), ONE), finding(found))
    assert texts(made) == [[CROSS], [f"55.0{DAGGER} ± 7.1"], ["55.0 ± 7.1 (2 of 3 seeds, 1 diverged)"]]
    crosses, daggers = made.footnotes
    assert crosses.endswith("a, x: seed 0 in round 2, seed 1 in round 2; c, x: seed 2 in round 2.")
    assert daggers.endswith("b, x: seed 0 round 1 of 9, seed 1 round 1 of 9.")
    assert rank_cells(replace(made, bold="plain")) == {}


def test_a_cell_without_runs_says_why() -> None:
    grid = Grid(
        rows(("", "a b")), (Entry("x"), Entry("y"), Entry("z", quantity=GAIN)), ONE, absent=frozenset({("b", "y")})
    )

    def find(row: Entry, column: Entry) -> Sequence[Run]:
        return [] if row.label == "a" and column.label != "z" else seeds(row.label, 0.5)

    made = make_grid("t", "T", grid, find, lacking=lambda row, column: "no data" if column.label == "y" else "not run")
    assert texts(made) == [["(a)", "(b)", "(c)"], ["50.0", "", "(c)"]]
    assert made.footnotes == ("(a) not run.", "(b) no data.", "(c) no run to compare with.")
    assert ",not run,,,0,,,no data," in render(made, "csv")


def test_targets_that_were_not_reached() -> None:
    found = {
        "a": seeds("a", 2000.0, 4000.0),
        "b": seeds("b", math.inf, math.inf),
        "c": seeds("c", 1000.0, math.inf),
        "d": seeds("d", math.inf, state="unfinished", planned=9),
    }
    made = make_grid("t", "T", Grid(rows(("", "a b c d")), (Entry("x"),), TARGET), finding(found))
    assert texts(made) == [["3.0k ± 1.4"], [NEVER], ["1.0k (1 of 2 not reached)"], ["not yet"]]
    assert f"{NEVER} not reached." in made.footnotes


def test_numbers_against_the_reference_of_the_same_seed_and_group() -> None:
    found = {"a": seeds("a", 0.5, 0.7), "b": seeds("b", 0.6, 0.75)}
    grid = Grid(rows(("", "a b")), (Entry("x"),), GAIN, reference="a")
    made = make_grid("t", "T", grid, finding(found))
    assert texts(made) == [["+0.00 ± 0.00"], ["+7.50 ± 3.54"]]
    hidden = make_grid("t", "T", replace(grid, rows=grid.rows[1:], reference=Entry("a")), finding(found))
    assert texts(hidden) == [["+7.50 ± 3.54"]]
    twice = Grid(rows(("g", "a b"), ("h", "a b")), (Entry("x"),), GAIN, reference="a")
    ends = {("g", "a"): 0.1, ("g", "b"): 0.2, ("h", "a"): 0.5, ("h", "b"): 0.4}
    made = make_grid("t", "T", twice, lambda row, _: seeds(row.label, ends[row.group, row.label]))
    assert texts(made) == [["+0.00"], ["+10.00"], ["+0.00"], ["-10.00"]]
    with pytest.raises(ValueError, match="no row is called 'z'; rows: a, b"):
        make_grid("t", "T", replace(grid, reference="z"), finding(found))


def test_a_number_against_an_unfinished_reference_is_not_final() -> None:
    found = {"a": seeds("a", 0.5, state="unfinished", planned=9), "b": seeds("b", 0.6)}
    made = make_grid("t", "T", Grid(rows(("", "a b")), (Entry("x"),), GAIN, reference="a"), finding(found))
    assert texts(made)[1] == [f"+10.00{DAGGER}"]


def test_arrows_against_the_reference() -> None:
    found = {"a": seeds("a", 0.5), "b": seeds("b", 0.6), "c": seeds("c", 0.4)}
    grid = Grid(rows(("", "a b c")), (Entry("x"),), ONE, reference="a", arrows=True)
    assert texts(make_grid("t", "T", grid, finding(found))) == [["50.0"], ["60.0↑"], ["40.0↓"]]


def test_what_is_known_from_the_first_round_on_has_no_cross() -> None:
    cost = Quantity("cost", "cost", lambda run, _: run.metrics[0]["bytes_up"], "", 0, "B", spread="", fixed=True)
    found = {"a": seeds("a", 0.1, 0.1, state="diverged", sent=7)}
    made = make_grid("t", "T", Grid(rows(("", "a")), (Entry("x"),), cost), finding(found))
    assert (texts(made), made.footnotes) == ([["7B"]], ())


def test_spread_over_clients_is_named_and_is_no_error_over_seeds() -> None:
    of_clients = replace(ONE, spread="clients", deviation=lambda run: 10.0 + run.seed)
    found = {"a": seeds("a", 0.5, 0.6)}
    made = make_grid("t", "T", Grid(rows(("", "a")), (Entry("x"),), of_clients), finding(found))
    assert texts(made) == [["55.0 ± 10.5"]]
    assert made.lines[0].cells[0].doubt == pytest.approx(5.0)  # |60 - 50| / sqrt(2) / sqrt(2)
    assert "± is the standard deviation over clients" in made.note


def test_printed_numbers_stand_beside_ours() -> None:
    found = {"a": seeds("a", 0.58, 0.62), "b": seeds("b", 0.6, state="diverged"), "c": seeds("c", 0.5)}
    printed = {
        ("a", "x"): Printed(62.0, 3.0, "%"),
        ("b", "x"): Printed(math.nan, sign=CROSS),
        ("c", "x"): Printed(44.0, 1.5, "%"),
        ("d", "x"): Printed(50.0, unit="%"),
    }
    grid = Grid(rows(("", "a b c d")), (Entry("x"),), ONE)
    made = make_grid("t", "T", grid, finding(found), printed=printed, beside=True)
    # a: -2 / sqrt(2^2 + 3) = -0.76; c: 6 / sqrt(1.5^2 + 1.5^2 / 3) = 3.46
    shown = [format_printed(line.cells[0], made.columns[0]) for line in made.lines]
    assert shown == ["[62.0 ± 3.0; -0.8]", f"[{CROSS}]", "[44.0 ± 1.5; +3.5]", "[50.0]"]
    assert "With one seed of ours the printed spread stands for ours too." in made.note
    for kind in RENDERERS:
        text = render(made, kind)
        assert "62.0" in text, kind
    assert "60.0 ± 2.8 [62.0 ± 3.0; -0.8]" in render(made, "html").replace(NO_BREAK, " ")
    heading, first, *_ = render(made, "csv").splitlines()
    assert heading.endswith("x printed,x printed spread,x difference in standard errors")
    assert float(first.split(",")[-1]) == pytest.approx(-2 / math.sqrt(7))
    assert "[" not in render(make_grid("t", "T", grid, finding(found), printed=printed), "markdown")


def test_an_unfinished_run_is_not_compared_with_what_is_printed() -> None:
    found = {"a": seeds("a", 0.58, 0.62, state="unfinished", planned=9)}
    printed = {("a", "x"): Printed(62.0, 3.0, "%")}
    made = make_grid("t", "T", Grid(rows(("", "a")), (Entry("x"),), ONE), finding(found), printed=printed, beside=True)
    assert format_printed(made.lines[0].cells[0], made.columns[0]) == "[62.0 ± 3.0]"


def test_errors_are_combined() -> None:
    assert combine_errors(Cell(1.0, 3.0, 9), math.nan) == pytest.approx(1.0)
    assert combine_errors(Cell(1.0, 3.0, 9), 3.0) == pytest.approx(2.0)  # sqrt(1 + 3)
    assert combine_errors(Cell(1.0, math.nan, 1, error=2.0), 3.0) == pytest.approx(4.0)  # sqrt(9 + 3 + 4)
    assert math.isnan(combine_errors(Cell(1.0, math.nan, 1), math.nan))


def test_numbers_from_a_part_of_the_data_say_so() -> None:
    part = Quantity(
        "lambda_1",
        "λ₁",
        lambda run, _: 30.0 + run.seed,
        "lower",
        1,
        study="curvature",
        error=lambda run: 3.0 + run.seed,
        examples=lambda run: Subset(300, 60000),
    )
    made = make_grid("t", "T", Grid(rows(("", "a")), (Entry("x"),), part), finding({"a": seeds("a", 0.5, 0.6)}))
    assert texts(made) == [["30.5 ± 0.7 (n = 300, SE 3.5)"]]  # sqrt((3^2 + 4^2) / 2) = 3.54
    assert made.footnotes == ("n: from a part of the data (λ₁: 300 of 60000 examples); SE: its standard error.",)
    assert made.note.startswith("λ₁. Means over 2 seeds")


def test_rows_may_show_different_quantities() -> None:
    grid = Grid((Entry("a"), Entry("b", quantity=TARGET)), (Entry("x"),), ONE)
    made = make_grid("t", "T", grid, finding({"a": seeds("a", 0.5), "b": seeds("b", 7600.0)}))
    assert texts(made) == [["50.0"], ["7.6k"]]
    chosen = Grid((Entry("a"),), (Entry("x"), Entry("y")), lambda row, column: TARGET if column.label == "y" else ONE)
    assert texts(make_grid("t", "T", chosen, finding({"a": seeds("a", 0.5)}))) == [["50.0", "0.0k"]]
    with pytest.raises(ValueError, match="a, x: neither row, column nor table says what the cell shows"):
        make_grid("t", "T", Grid((Entry("a"),), (Entry("x"),)), finding({}))


def test_an_accuracy_as_good_as_guessing_is_never_bold() -> None:
    found = {"a": seeds("a", 0.1001, 0.1002, classes=10), "b": seeds("b", 0.05, 0.0501, classes=10)}
    made = make_grid("t", "T", Grid(rows(("", "a b")), (Entry("x"),), ONE), finding(found), bold="plain")
    assert rank_cells(made) == {}


def test_texts_stand_before_the_numbers_and_are_never_marked() -> None:
    found = {name: seeds(name, end, end + 0.01) for name, end in {"a": 0.5, "b": 0.6}.items()}
    grid = Grid(rows(("", "a b")), (Entry("x"),), ACCURACY, facts={"ADMM": {"a": "yes", "b": "no"}})
    made = make_grid("t", "T", grid, finding(found))
    assert [column.title for column in made.columns] == ["ADMM", "x"]
    assert [line[0] for line in texts(made)] == ["yes", "no"]
    assert rank_cells(made) == {(1, 1): 1}


def test_the_best_is_marked_among_rivals() -> None:
    found = {name: seeds(name, end, end + 0.001) for name, end in {"a": 0.5, "b": 0.6, "c": 0.8, "d": 0.3}.items()}
    grid = Grid(
        rows(("one", "a b"), ("two", "c d")), (Entry("x"),), ACCURACY, rivals=lambda row: str(row.label in "ac")
    )
    assert rank_cells(make_grid("t", "T", grid, finding(found))) == {(1, 0): 1, (2, 0): 1}
