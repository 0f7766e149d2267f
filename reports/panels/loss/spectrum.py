"""The largest Hessian eigenvalues of the final global model against their index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from landscape.plotting.style import label_axes, mark
from reports.inputs.runs import Run
from reports.panels.kind import Given, Kind, Shown
from reports.plotting.fitting import fit_axis
from reports.plotting.lines import NOTHING, Series, draw_mean_line
from reports.rows import Row, list_numbers


@dataclass(frozen=True)
class Options:
    """How many eigenvalues are drawn: `top`, or all that were measured."""

    top: int | None = None


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw a line for each series, the mean over seeds; open circles where an eigenvalue did not converge."""
    rows: list[Row] = []
    for one in shown:
        found = draw_mean_line(
            axes, one, lambda run: _find(run, options.top), "eigenvalue", x="index", label=one.name, markersize=3
        )
        rows += [{**row, "series": one.name} for row in found]
        for run in one.shown:
            places, values = _find_unsure(run, options.top)
            open_ = axes.plot(places, values, "o", color="white", markeredgecolor=one.look.color, markersize=4)
            mark(open_, [run.name])
    label_axes(axes, "index of the eigenvalue, largest first", "eigenvalue of the Hessian")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    fit_axis(axes, "y", list_numbers(rows, "mean"), always=True)
    return rows


def _find(run: Run, top: int | None) -> Series:
    """Eigenvalues of the last round by rank."""
    data = run.measured("curvature")
    if data is None or "eigenvalue" not in data:
        return NOTHING
    last = data["eigenvalue"].isel(round=-1)[:top]
    return last["rank"].values.astype(np.float64), last.values.astype(np.float64)


def _find_unsure(run: Run, top: int | None) -> Series:
    """Those that did not converge."""
    data = run.measured("curvature")
    if data is None or "converged" not in data:
        return NOTHING
    places, values = _find(run, top)
    unsure = data["converged"].isel(round=-1).values[: len(places)] == 0
    return places[unsure], values[unsure]


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say whose Hessian it is, and what open circles are."""
    answers = [answer for one in shown for run in one.shown if (answer := run.answer("curvature")) is not None]
    splits = " and ".join(sorted({str(one.settings.get("split", "train")) for one in answers}))
    unsure = any(len(_find_unsure(run, options.top)[0]) for one in shown for run in one.shown)
    seeds = max((len(one.shown) for one in shown), default=0)
    return [
        f"Hessian of the {splits} loss of the global model, last round" if answers else "",
        f"mean and range over up to {seeds} seeds" if seeds > 1 else "",
        "open circles: not converged" if unsure else "",
    ]


KIND = Kind(
    name="spectrum",
    shows="the largest eigenvalues against their index",
    draw=draw,
    options=Options,
    studies=lambda options: ("curvature",),
    describe=describe,
)
