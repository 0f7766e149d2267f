"""Loss along the straight line between the models of two series, on training and test data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from landscape.plotting.style import label_axes, mark
from reports.panels.kind import Given, Kind, Shown
from reports.plotting.fitting import select_finite
from reports.plotting.loss.between import Line, get_curve, list_rows, read_lines
from reports.rows import Row

STYLES = {"train": ("-", "training"), "test": ("--", "test")}


@dataclass(frozen=True)
class Options:
    """What is drawn along the line.

    field: loss or error.
    cap: highest value that is shown, times the highest between the two models; what lies beyond them may rise far.
    """

    field: str = "loss"
    cap: float = 4.0


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw a curve for each split in the colour of the model at 1, from the first series (0) to the second (1)."""
    line = _find_line(shown, given)
    if line is None or len(shown) < 2:
        return []
    first, second = shown[0], shown[1]
    for split in map(str, line.data["split"].values):
        style, word = STYLES.get(split, (":", split))
        mark(axes.plot(*get_curve(line.data, options.field, split), style, color=second.look.color), line.runs)
        axes.plot([], [], style, color="black", label=f"{word} {options.field}")
    for place, one in ((0, first), (1, second)):
        axes.axvline(place, color="0.7", linewidth=0.8)
        axes.annotate(
            one.name, (place, 1), (0, -2), xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=7
        ).set(ha="center", va="top", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    _limit(axes, line, options)
    label_axes(axes, r"$\gamma$ in $(1 - \gamma)\, w_0 + \gamma\, w_1$", options.field)
    axes.xaxis.set_major_locator(MultipleLocator(0.5))
    return [{"series": f"{first.name} to {second.name}", **row} for row in list_rows(line)]


def _find_line(shown: Sequence[Shown], given: Given) -> Line | None:
    """The line from a run of the first series to one of the second; None where there is none."""
    if given.answer is None or given.answer.study != "interpolation" or len(shown) < 2:
        return None
    ends = [{run.name for run in one.runs} for one in shown[:2]]
    for data, start, end in read_lines(given.answer):
        if start.run in ends[0] and end.run in ends[1]:
            return Line(data, start, end, (start.run, end.run))
        if start.run in ends[1] and end.run in ends[0]:
            return Line(_turn(data), end, start, (end.run, start.run))
    return None


def _turn(data: xr.Dataset) -> xr.Dataset:
    """The same line from its other end: the weight of the second model is 1 minus that of the first."""
    where = {name: 1 - data[name] for name in ("loss_where", "error_where", "refined_x")}
    return data.assign(where).assign_coords(x=1 - data["x"]).sortby("x")


def _limit(axes: Axes, line: Line, options: Options) -> None:
    """From zero to what can be seen: far beyond the models the loss may be many times theirs."""
    between = select_finite(line.data[options.field].sel(x=slice(0, 1)).values)
    every = select_finite(line.data[options.field].values)
    if len(between) and len(every):
        top = float(min(np.max(every), options.cap * np.max(between)))
        axes.set_ylim(0, 1.08 * top if top > 0 else 1.0)


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say how high the barrier is, on how many examples it was measured, and what is not shown."""
    line = _find_line(shown, given)
    if line is None:
        return []
    counts = zip(line.data["split"].values, line.data["examples"].values, strict=True)
    every, high = select_finite(line.data[options.field].values), options.cap
    between = select_finite(line.data[options.field].sel(x=slice(0, 1)).values)
    cut = len(every) and len(between) and every.max() > high * between.max()
    return [
        f"barrier of the {line.data['split'].values[0]} loss above the chord, {shown[0].name} to {shown[1].name}: "
        f"{line.barrier:.2g}",
        f"n = {', '.join(f'{int(count)} {split}' for split, count in counts)}",
        f"BatchNorm {line.data['batchnorm'].item()}",
        f"what is higher than {high:g} times the highest value between the models is not shown" if cut else "",
    ]


KIND = Kind(
    name="interpolation",
    shows="loss along the line between two models",
    draw=draw,
    options=Options,
    studies=lambda options: ("interpolation",),
    together=True,
    most=2,
    describe=describe,
)
