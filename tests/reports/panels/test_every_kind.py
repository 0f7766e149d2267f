"""Every kind of panel: drawn from stored answers, and honest where they are missing."""

from __future__ import annotations

import pytest

from reports.figure_type import Drawing
from reports.inputs.runs import Run
from reports.panels.catalog import PANELS
from reports.panels.kind import Kind
from tests.reports.panels.made_up import diverge, draw, list_legend, make_eigen, make_run
from tests.reports.results import interpolation

PAIR = [("run-run", ("a", 10, -1), ("b", 10, -1))]


def make_series(kind: Kind, *, studies: tuple[str, ...] | None = None) -> dict[str, list[Run]]:
    """As many series as a kind shows, two at most."""
    given = {} if studies is None else {"studies": studies}
    answers = {"surface": make_eigen("a")} if kind.name == "eigen_surface" and studies is None else {}
    runs = {"One": [make_run("a", answers=answers, **given)], "Two": [make_run("b", "fedgloss", **given)]}
    return dict(list(runs.items())[: kind.most or 2])


def draw_kind(kind: Kind, series: dict[str, list[Run]]) -> Drawing:
    answer = interpolation.stored(PAIR) if kind.name == "interpolation" and any(series.values()) else None
    options = {"x": "rounds.count"} if kind.name == "sweep" else {}
    return draw(kind.name, series, answer=answer, **options)


@pytest.mark.parametrize("kind", PANELS.values(), ids=PANELS.keys())
def test_numbers_are_drawn_and_listed_with_their_panel(kind: Kind) -> None:
    series = make_series(kind)
    drawn = draw_kind(kind, series)
    assert drawn.rows
    assert {row["panel"] for row in drawn.rows} == {"title"}
    assert {row["figure"] for row in drawn.rows} == {"paper/figure1"}
    if not kind.together:
        assert {row["series"] for row in drawn.rows} == set(series)
    assert not [text for text in _list_texts(drawn) if "cannot" in text or "not " in text]
    assert drawn.caption.startswith("What it shows")
    assert drawn.caption.endswith("a note")
    drawn.canvas.draw_without_rendering()


@pytest.mark.parametrize("kind", PANELS.values(), ids=PANELS.keys())
def test_a_panel_without_runs_says_so(kind: Kind) -> None:
    drawn = draw_kind(kind, {name: [] for name in make_series(kind)})
    assert drawn.rows == []
    assert _list_texts(drawn) == ["not run"]
    assert not list_legend(drawn)
    drawn.canvas.draw_without_rendering()


@pytest.mark.parametrize("kind", PANELS.values(), ids=PANELS.keys())
def test_a_panel_whose_runs_have_no_numbers_says_so(kind: Kind) -> None:
    series = make_series(kind, studies=())
    bare = {name: [_strip(run) for run in runs] for name, runs in series.items()}
    drawn = draw(kind.name, bare, **({"x": "rounds.count"} if kind.name == "sweep" else {}))
    assert drawn.rows == []
    (text,) = _list_texts(drawn)
    assert text.startswith("not measured")
    for study in kind.studies(kind.read_options({})):
        assert study in text
    drawn.canvas.draw_without_rendering()


@pytest.mark.parametrize("kind", PANELS.values(), ids=PANELS.keys())
def test_a_diverged_run_is_named_or_not_drawn(kind: Kind) -> None:
    series = {name: [diverge(run) for run in runs] for name, runs in make_series(kind).items()}
    drawn = draw_kind(kind, series)
    said = [*list_legend(drawn), *_list_texts(drawn)]
    assert any("diverged" in text for text in said)


def test_a_reason_can_be_given() -> None:
    drawn = draw("curves", {"One": []}, lacking=lambda panel, entry: "the run diverged")
    assert _list_texts(drawn) == ["the run diverged"]


def test_a_study_of_another_version_spoils_one_panel_only() -> None:
    run = make_run("a")
    data = run.answers["robustness"][0].data.rename(accuracy="other")
    run.answers["robustness"][0].__dict__["data"] = data
    drawn = draw("corruptions", {"One": [run]})
    (text,) = _list_texts(drawn)
    assert text.startswith("cannot be drawn (KeyError")
    assert drawn.rows == []


def _strip(run: Run) -> Run:
    run.metrics.clear()
    run.answers.clear()
    object.__setattr__(run, "class_counts", None)
    return run


def _list_texts(drawn: Drawing) -> list[str]:
    """What is written into panels, without names of models and numbers on bars."""
    return [
        text.get_text()
        for axes in drawn.canvas.axes
        for text in axes.texts
        if text.get_color() in ("0.4",) and text.get_text()
    ]
