"""Every entry of every paper: complete, shaped as printed, and made of recipes and questions that are accepted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from analysis.catalog import STUDIES
from reports.artefact import Artefact, Entry, Facts, Grid, Layout, NotReproduced, Paper, Question, get_key, list_cells
from reports.artefacts.plan import list_comparisons, plan_paper, read_keys, select_runs
from reports.artefacts.scales import SCALES, Scale
from reports.panels.catalog import PANELS
from reports.papers.catalog import PAPERS
from reports.quantities.quantity import Quantity
from reports.tables.published import read_printed
from training import config
from training.settings import build

COUNTS = {  # tables and figures that each paper numbers
    "fedfsa": (2, 5),
    "fedvssam": (5, 9),
    "fedgloss": (13, 20),
    "fedsam": (17, 16),
    "fedsol": (9, 10),
}
LONGEST = 45  # letters beside the axis of a panel
MOST = {"clients": 100, "rounds": 70, "epochs": 5}  # of a run at scale digits

papers = pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
scales = pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)


def list_grids(paper: Paper) -> list[tuple[Artefact, Grid]]:
    """List the tables of a paper that show numbers of runs."""
    return [(one, one.shape) for one in paper.artefacts if isinstance(one.shape, Grid)]


def list_questions(paper: Paper) -> list[Question]:
    """List all questions of a paper, with those that compare runs."""
    layouts = [one.shape for one in paper.artefacts if isinstance(one.shape, Layout)]
    compared = [panel.question for layout in layouts for panel in layout.panels if panel.question is not None]
    return [*(question for one in paper.artefacts for question in one.questions), *compared]


def find_printed(grid: Grid, row: Entry, column: Entry) -> tuple[str, str]:
    """Find what published.csv calls a cell."""
    return (get_key(row), get_key(column)) if grid.printed is None else grid.printed(row, column)


@papers
def test_every_numbered_table_and_figure_is_there(paper: Paper) -> None:
    tables, figures = COUNTS[paper.key]
    numbered = [*(f"table{one + 1}" for one in range(tables)), *(f"figure{one + 1}" for one in range(figures))]
    assert paper.names == numbered
    for one in paper.artefacts:
        assert one.title, one.name
        assert "\n" not in one.note, one.name


@papers
def test_every_printed_number_has_a_cell(paper: Paper) -> None:
    for artefact, grid in list_grids(paper):
        shown = {
            find_printed(grid, row, column)
            for row in grid.rows
            for column in grid.columns
            if (get_key(row), get_key(column)) not in grid.absent
        }
        assert set(read_printed(f"{paper.key}/{artefact.name}")) - shown == set(), artefact.name


@papers
def test_printed_numbers_of_other_artefacts_are_facts(paper: Paper) -> None:
    for one in paper.artefacts:
        if isinstance(one.shape, (Layout, NotReproduced)):
            assert not read_printed(f"{paper.key}/{one.name}"), one.name
        elif isinstance(one.shape, Facts):
            assert {len(row) for row in one.shape.rows} == {len(one.shape.headings)}, one.name


@papers
def test_no_row_column_or_series_stands_there_twice(paper: Paper) -> None:
    for artefact, grid in list_grids(paper):
        for entries in (grid.rows, grid.columns):
            twice = [key for key, count in Counter(map(get_key, entries)).items() if count > 1]
            assert not twice, artefact.name
        keys = {get_key(one) for one in (*grid.rows, *grid.columns)}
        hidden = grid.reference  # an entry that the table does not show, by its key or label
        reference = {get_key(hidden), hidden.label} if isinstance(hidden, Entry) else set[str]()
        assert {one for pair in grid.absent for one in pair} <= keys | reference, artefact.name
    for one in paper.artefacts:
        for panel in one.shape.panels if isinstance(one.shape, Layout) else ():
            twice = [key for key, count in Counter((x.group, x.label) for x in panel.series).items() if count > 1]
            assert not twice, one.name


@papers
def test_every_cell_shows_a_quantity(paper: Paper) -> None:
    for artefact, grid in list_grids(paper):
        for row in grid.rows:
            for column in grid.columns:
                assert row.quantity or column.quantity or grid.quantity, (artefact.name, get_key(row), get_key(column))


@papers
def test_panels_are_of_a_known_kind_with_options_it_has(paper: Paper) -> None:
    for one in paper.artefacts:
        for panel in one.shape.panels if isinstance(one.shape, Layout) else ():
            kind = PANELS[panel.kind]
            options = kind.read_options(panel.options)
            asked = {question.study for question in (*one.questions, panel.question) if question is not None}
            if panel.kind == "client_curves" and "training" in asked:
                continue  # recorded in training, which `forgetting` would measure afterwards
            assert set(kind.studies(options)) <= asked, (one.name, panel.title)


@papers
def test_studies_of_quantities_are_asked(paper: Paper) -> None:
    for artefact, grid in list_grids(paper):
        asked = {question.study for question in artefact.questions}
        for row in grid.rows:
            for column in grid.columns:
                usual = grid.quantity(row, column) if callable(grid.quantity) else grid.quantity
                quantity = row.quantity or column.quantity or usual
                assert quantity is not None
                assert {quantity.study} <= asked | {""}, (artefact.name, quantity.name)


@papers
@scales
def test_every_run_has_an_accepted_recipe(paper: Paper, scale: Any) -> None:
    for one in plan_paper(paper, scale).values():
        config.validate(one.content)


@papers
@scales
def test_every_question_has_accepted_settings(paper: Paper, scale: Any) -> None:
    for question in list_questions(paper):
        study = STUDIES[question.study]
        build(study.settings, question.at(scale.name), f"study {question.study}")


@papers
@scales
def test_artefacts_can_be_planned_one_by_one(paper: Paper, scale: Any) -> None:
    plan = plan_paper(paper, scale)
    for artefact in paper.artefacts:
        chosen = select_runs(paper, [artefact], scale)
        assert set(chosen) <= set(plan)
        for comparison in list_comparisons(paper, artefact, scale):
            assert set(comparison.runs) <= set(chosen)


@papers
def test_runs_are_small_at_scale_digits(paper: Paper) -> None:
    for one in plan_paper(paper, SCALES["digits"]).values():
        content = one.content
        assert content["data"]["name"] in ("digits", "synthetic", "speeches", "brain")  # nothing to download
        assert content["partition"].get("clients", 10) <= MOST["clients"]
        assert content["rounds"]["count"] <= MOST["rounds"]
        assert content["local"].get("epochs", 1) <= MOST["epochs"]


@papers
@scales
def test_questions_about_local_models_find_them(paper: Paper, scale: Any) -> None:
    """A run that is asked about its participants must keep their models."""
    for one in plan_paper(paper, scale).values():
        kept = one.content["checkpoints"].get("keep_locals", "last")
        assert kept != "none" or not any(needs_locals(question, scale.name) for question in one.questions.values())


def needs_locals(question: Question, scale: str) -> bool:
    """Whether a question is about participants' models."""
    settings = question.at(scale)
    return (
        question.study in ("local_global", "drift", "sensitivity")
        or (question.study == "surface" and bool(settings.get("clients")))
        or (question.study == "plane" and settings.get("models", "clients") == "clients")
    )


@papers
@scales
def test_cells_that_differ_in_the_paper_have_different_runs_at_every_scale(paper: Paper, scale: Scale) -> None:
    for artefact in paper.artefacts:
        known: dict[tuple[str, ...], list[str]] = {}
        for cell in list_cells(paper, artefact):
            if made := tuple(read_keys(paper, cell, scale)):
                published = read_keys(paper, cell, SCALES["full"])
                assert known.setdefault(made, published) == published, (artefact.name, cell.row, cell.column)


@papers
def test_labels_of_axes_are_no_longer_than_the_axes(paper: Paper) -> None:
    for one in paper.artefacts:
        for panel in one.shape.panels if isinstance(one.shape, Layout) else ():
            for shown in (panel.options.get("quantity"), panel.options.get("second")):
                assert not isinstance(shown, Quantity) or len(shown.label) <= LONGEST, (one.name, shown.label)
