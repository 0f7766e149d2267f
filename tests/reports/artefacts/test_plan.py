"""Runs are shared, what they keep is united, and questions of one name agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reports.artefact import Artefact, Grid, Layout, Panel, Question
from reports.artefacts.plan import (
    can_be_made,
    list_comparisons,
    plan_paper,
    select_artefacts,
    select_runs,
    unite_keeps,
)
from reports.artefacts.scales import SCALES
from reports.quantities.catalog import ACCURACY
from tests.reports.artefacts.sample import ACCURACIES, COLUMNS, DRAWING, LAMBDA, PAPER, ROWS, SHARPNESS

DIGITS, FULL = SCALES["digits"], SCALES["full"]


def test_artefacts_share_runs() -> None:
    first, second = select_runs(PAPER, [ACCURACIES], FULL), select_runs(PAPER, [SHARPNESS], FULL)
    assert len(first) == 5 * 3  # five cells, three seeds
    assert set(second) < set(first)
    assert len(select_runs(PAPER, [ACCURACIES, SHARPNESS], FULL)) == 15
    assert len(select_runs(PAPER, [ACCURACIES], DIGITS)) == 5 * 2  # two seeds


def test_a_run_keeps_what_any_artefact_of_the_paper_wants() -> None:
    """Whichever artefact is asked for first, the run is the same."""
    shared = set(select_runs(PAPER, [SHARPNESS], FULL))
    for key, run in select_runs(PAPER, [ACCURACIES], FULL).items():
        kept = run.content["checkpoints"]
        assert kept == ({"every": 100, "keep_locals": "all"} if key in shared else {"every": 500})
        assert run.questions == {}
    assert all(
        run.questions == {("curvature", "lambda"): LAMBDA} for run in select_runs(PAPER, [SHARPNESS], FULL).values()
    )


def test_keeps_are_united() -> None:
    one = {
        "checkpoints": {"every": 4, "keep_locals": "last"},
        "record": ["a"],
        "evaluation": {"personal": True, "last": 5},
    }
    other = {"checkpoints": {"every": 6, "keep_locals": "all"}, "record": ["b", "a"], "evaluation": {"last": 3}}
    assert unite_keeps(one, other) == {
        "checkpoints": {"every": 2, "keep_locals": "all"},
        "record": ["a", "b"],
        "evaluation": {"personal": True, "last": 5},
    }


def test_two_questions_of_one_name_must_agree() -> None:
    other = replace(SHARPNESS, name="table9", questions=(Question("curvature", "lambda", {"top": 9}),))
    with pytest.raises(ValueError, match="question 'lambda' of curvature has other settings elsewhere"):
        plan_paper(replace(PAPER, artefacts=(*PAPER.artefacts, other)), DIGITS)


def test_drawings_cannot_be_made() -> None:
    assert [can_be_made(one) for one in PAPER.artefacts] == [True, True, True, False]
    assert PAPER.artefacts[-1] is DRAWING


def test_a_comparison_names_the_runs_of_its_panel_in_order() -> None:
    panel = Panel("plane", ROWS, settings={"partition.alpha": 0.0}, question=Question("plane", "plane"))
    figure = Artefact("figure2", "A plane", Layout((Panel("curves", ROWS), panel)))
    paper = replace(PAPER, artefacts=(figure,))
    (found,) = list_comparisons(paper, figure, DIGITS)
    plan = plan_paper(paper, DIGITS)
    assert (found.panel, found.name) == (1, "sample-figure2-2")
    assert [plan[key].content["algorithm"]["name"] for key in found.runs] == ["fedavg", "fedsam"]
    assert {plan[key].content["seed"] for key in found.runs} == {3}
    every = replace(figure, shape=Layout((replace(panel, every_seed=True),)))
    names = [one.name for one in list_comparisons(replace(PAPER, artefacts=(every,)), every, DIGITS)]
    assert names == ["sample-figure2-1-1", "sample-figure2-1-2"]


def test_artefacts_are_selected_by_name() -> None:
    papers = {"sample": PAPER}
    assert [one.name for _, one in select_artefacts(papers, "sample/table2")] == ["table2"]
    assert len(select_artefacts(papers, "sample")) == len(select_artefacts(papers, "all")) == 4
    with pytest.raises(ValueError, match=r"paper: unknown 'sampl'; did you mean 'sample'\?"):
        select_artefacts(papers, "sampl/table2")


def test_a_cell_may_be_left_empty() -> None:
    grid = Grid(ROWS, COLUMNS[:1], ACCURACY, absent=frozenset({("avg", "CIFAR10: α = 0")}))
    only = Artefact("table8", "Half of it", grid)
    assert len(select_runs(replace(PAPER, artefacts=(only,)), [only], DIGITS)) == 2
