"""Accuracy and training loss over rounds: one line per method, a band where there are several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from landscape.plotting.style import join_caption, label_axes, make_canvas
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run, name_score
from reports.plotting.fitting import draw_shared_legend
from reports.plotting.lines import draw_mean_line
from reports.plotting.over_rounds import find_best
from reports.rows import Row
from reports.variants import describe_seeds, find_variants


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw accuracy, or mean IoU, and training loss over rounds, a line for each method."""
    figure, axes = make_canvas(1, 2, width=9.0, height=3.6)
    rows: list[Row] = []
    found = find_variants(runs, everything)
    score = name_score(runs)
    panels = (("accuracy", score, f"test {score} (%)", 100.0), ("train_loss", "train_loss", "training loss", 1.0))
    for place, (key, metric, name, factor) in zip(axes, panels, strict=True):
        for variant in found:
            rows += draw_mean_line(place, variant, partial(find_best, key=key, factor=factor), metric)
        label_axes(place, "communication round", name)
    if not rows:
        return []
    draw_shared_legend(figure)
    band = describe_seeds(found) or f"seed {runs[0].seed}"
    said = [f"{run.data_name}, {run.heterogeneity}" for run in runs[:1]]
    if any("swa" in run.settings for run in runs):
        said.append("of the SWA model once there is one")
    said.append("training loss: of the steps of local training, each on its own client's data")
    return [Drawing(figure, rows, join_caption([*said, band]))]


FIGURE = Figure(
    name="accuracy",
    topic="good",
    title="Accuracy and loss over rounds",
    reading="Higher accuracy sooner is better; a curve that jumps tells of clients that pull in different directions.",
    needs=(),
    draw=draw,
)
