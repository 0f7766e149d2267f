"""How the network of one series sees the classes at one round: t-SNE of what enters its classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from landscape.plotting.style import mark
from reports.inputs.runs import Run
from reports.panels.kind import Given, Kind, Shown
from reports.panels.loss.surface import choose_seed
from reports.plotting.embedding import draw_embedding
from reports.rows import Row


@dataclass(frozen=True)
class Options:
    """Which round is drawn.

    at: share of the run's rounds, 0.5 for half of the training; the nearest round that was measured is drawn and named.
    classes: names of classes.
    """

    at: float = 1.0
    classes: tuple[str, ...] = ()


def find_round(data: xr.Dataset, run: Run, at: float) -> int:
    """Find the place of the measured round that is nearest to a share of the run's rounds."""
    planned = run.progress.planned or int(data["round"].values[-1])
    return int(np.argmin(np.abs(data["round"].values - at * planned)))


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw the points of the first series, coloured by class; crosses were taken for another class."""
    run = choose_seed(shown[:1]).get(shown[0].name) if shown else None
    data = None if run is None else run.measured("features")
    if run is None or data is None:
        return []
    one = data.isel(model=0, round=find_round(data, run, options.at))
    drawn = draw_embedding(axes, one, options.classes, letters=8)
    axes.set_xlabel(f"round {int(one['round'])}")
    mark(axes, [run.name])
    return [{"series": shown[0].name, "round": int(one["round"]), **row} for row in drawn]


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say how many examples there are, and what crosses are."""
    run = choose_seed(shown[:1]).get(shown[0].name) if shown else None
    answer = None if run is None else run.answer("features")
    if run is None or answer is None:
        return []
    split, perplexity = answer.settings.get("split", "test"), answer.settings.get("perplexity", 30)
    return [
        f"t-SNE of {answer.data.sizes['example']} {split} examples, perplexity {perplexity:g}",
        "crosses: taken for another class",
        f"seed {run.seed}",
    ]


KIND = Kind(
    name="features",
    shows="t-SNE of the features by class",
    draw=draw,
    options=Options,
    studies=lambda options: ("features",),
    most=1,
    describe=describe,
    size=(2.6, 2.4),
)
