"""Accuracy and training loss over rounds: one line per method, a band where there are several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from reports.figure import Drawn, Figure
from reports.plotting.fitting import shared_legend
from reports.plotting.lines import Series, mean_line
from reports.plotting.style import canvas, caption, label
from reports.rows import Row
from reports.runs import Collection, Run
from reports.variants import seeds_said, variants

PANELS = (("accuracy", "test accuracy (%)", 100.0), ("train_loss", "training loss", 1.0))


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    figure, axes = canvas(1, 2, width=9.0, height=3.6)
    rows: list[Row] = []
    found = variants(runs, everything)
    for place, (key, name, factor) in zip(axes, PANELS, strict=True):
        for variant in found:
            rows += mean_line(place, variant, partial(best, key=key, factor=factor), key)
        label(place, "communication round", name)
    if not rows:
        return []
    shared_legend(figure)
    band = seeds_said(found) or f"seed {runs[0].seed}"
    said = [f"{run.data}, {run.heterogeneity}" for run in runs[:1]]
    if any("swa" in run.settings for run in runs):
        said.append("of the SWA model once there is one")
    return [Drawn(figure, rows, caption([*said, band]))]


def best(run: Run, key: str = "accuracy", factor: float = 1.0) -> Series:
    """A metric over rounds; as accuracy that of the SWA model once there is one, the server's before."""
    rounds, values = run.series(key)
    if key == "accuracy":
        averaged = dict(zip(*run.series("swa_accuracy"), strict=True))
        values = np.asarray([averaged.get(round, value) for round, value in zip(rounds, values, strict=True)])
    return rounds, factor * values


FIGURE = Figure(
    name="accuracy",
    topic="good",
    title="Accuracy and loss over rounds",
    reading="Higher accuracy sooner is better; a curve that jumps tells of clients that pull in different directions.",
    needs=(),
    draw=draw,
)
