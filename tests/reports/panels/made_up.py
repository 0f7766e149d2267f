"""Runs in memory with made-up answers, and layouts of one panel each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.store import Answer
from reports.artefact import Entry, Layout, Panel
from reports.figure_type import Drawing
from reports.inputs.progress import Progress
from reports.inputs.runs import Run
from reports.panels.layout import draw_layout
from tests.reports.conftest import RESULTS
from tests.reports.results import surface

COUNTS = np.array([[4, 0, 0], [0, 1, 1], [1, 1, 5], [2, 2, 2]])  # clients, classes


def make_run(
    name: str,
    algorithm: str = "fedavg",
    *,
    seed: int = 0,
    scale: float = 1.0,
    state: str = "finished",
    studies: Sequence[str] = tuple(RESULTS),
    answers: Mapping[str, Answer] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """A run of ten rounds, four of them on record, whose accuracy is 0.1, 0.2, 0.3 and 0.4 times its scale."""
    found = {study: (RESULTS[study](name, scale),) for study in studies}
    found |= {study: (answer,) for study, answer in (answers or {}).items()}
    return Run(
        Path(name),
        {
            "seed": seed,
            "algorithm": {"name": algorithm},
            "evaluation": {"last": 2},
            "rounds": {"count": 10},
            **(settings or {}),
        },
        [
            {
                "round": t,
                "accuracy": 0.1 * t * scale,
                "norm": 10.0**t * scale,
                "recorded": {"proximal_cosine": {"mean": -0.1 * t}},
            }
            for t in (1, 2, 3, 4)
        ],
        found,
        COUNTS,
        Progress(state, 4 if state == "finished" else 2, 10),
    )


def draw(
    kind: str,
    series: Mapping[str, Sequence[Run]],
    *,
    answer: Answer | None = None,
    groups: Mapping[str, str] | None = None,
    lacking: Callable[[Panel, Entry], str] | None = None,
    **options: object,
) -> Drawing:
    """Draw one panel whose series have these runs.

    series: printed name -> runs. groups: printed name -> group.
    """
    entries = tuple(Entry(name, group=(groups or {}).get(name, "")) for name in series)
    panel = Panel(kind, entries, "title", options=options)
    return draw_panels([panel], series, answer, lacking=lacking)


def draw_panels(
    panels: Sequence[Panel],
    series: Mapping[str, Sequence[Run]],
    answer: Answer | None = None,
    *,
    across: int = 2,
    lacking: Callable[[Panel, Entry], str] | None = None,
) -> Drawing:
    """Draw some panels; series of the same name have the same runs in all of them."""
    return draw_layout(
        "paper/figure1",
        "What it shows",
        Layout(tuple(panels), across, "a note"),
        lambda panel, entry: series[entry.label],
        lambda panel: answer,
        lacking=lacking,
    )


def diverge(run: Run, last: int = 2) -> Run:
    """The same run, diverged after a round."""
    return replace(run, progress=Progress("diverged", last, 10), metrics=run.metrics[:last])


def list_legend(drawn: Drawing) -> list[str]:
    """What the legends of a figure say."""
    return [text.get_text() for legend in drawn.canvas.legends for text in legend.get_texts()]


def make_eigen(name: str) -> Answer:
    """A surface along eigenvectors."""
    return surface.stored([name], axes="eigen")
