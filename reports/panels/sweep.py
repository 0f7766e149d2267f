"""What a setting does: a quantity against its values, one line per group of series, error bars over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from landscape.plotting.style import label_axes, mark
from reports.inputs.recipes import as_number, is_number
from reports.inputs.runs import Run
from reports.panels.kind import Given, Kind, Shown, find_quantity, list_values
from reports.plotting.fitting import fit_axis
from reports.quantities.catalog import ACCURACY, Quantity
from reports.rows import Row, list_numbers
from reports.variants import flatten_settings

APART = 0.12  # how far lines are moved against each other, so that bars stay visible


@dataclass(frozen=True)
class Options:
    """What is drawn against which setting.

    x: dotted key of the setting, or a function that finds the number of a run.
    label: of the x axis; by default the key.
    quantity: of every series that has none of its own.
    second: another quantity, dashed, with an axis of its own on the right.
    spacing: of the values along the axis: even, or as numbers on a linear or logarithmic axis.
    """

    x: str | Callable[[Run], float] = ""
    label: str = ""
    quantity: Quantity = ACCURACY
    second: Quantity | None = None
    spacing: Literal["even", "linear", "log"] = "even"

    @property
    def name(self) -> str:
        """Of the x axis."""
        return self.label or (self.x if isinstance(self.x, str) else "")


@dataclass(frozen=True)
class Point:
    """A point of a line: the value of the setting (None: it has not that setting), its series, and rows for the CSV."""

    value: float | None
    one: Shown
    row: Row


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw lines of points with error bars; series without the setting become dashed horizontal lines."""
    rows = _draw_quantity(axes, shown, options, None)
    label_axes(axes, options.name, options.quantity.label)
    if options.second is not None:
        beside = axes.twinx()
        rows += _draw_quantity(beside, shown, options, options.second)
        beside.set_ylabel(f"{options.second.label} (dashed)")
        beside.grid(False)
        beside.spines["right"].set_visible(True)
    return rows


def _draw_quantity(axes: Axes, shown: Sequence[Shown], options: Options, other: Quantity | None) -> list[Row]:
    """All lines of one quantity.

    other: the second quantity; None: the first.
    """
    points = [point for one in shown if (point := _find_point(one, options, other)) is not None]
    lines = list(dict.fromkeys(point.one.group or point.one.name for point in points))
    values = sorted({point.value for point in points if point.value is not None})
    for number, line in enumerate(lines):
        some = [point for point in points if (point.one.group or point.one.name) == line]
        along = sorted((point for point in some if point.value is not None), key=lambda point: float(point.value or 0))
        shift = APART * ((number + 0.5) / len(lines) - 0.5)
        if along:
            _draw_line(axes, along, [_place(point, values, options, shift) for point in along], line, other is not None)
        for point in some:
            if point.value is None:
                level = axes.axhline(float(point.row["mean"]), linestyle=":", color=point.one.look.color, label=line)
                mark(level, point.one.names)
    _set_ticks(axes, values, options)
    rows = [point.row for point in points]
    fit_axis(axes, "y", list_numbers(rows, "mean"))
    return rows


def _find_point(one: Shown, options: Options, other: Quantity | None) -> Point | None:
    """The mean over seeds of a series; None where nothing is known of it."""
    quantity = other or find_quantity(one, options.quantity)
    numbers = list_values(one, quantity)
    if not len(numbers):
        return None
    value = _find_value(one.runs[0], options.x)
    spread = float(numbers.std(ddof=1)) if len(numbers) > 1 else float("nan")
    about: Row = {"series": one.name, "group": one.group, "setting": options.name}
    row: Row = {**about, "value": "" if value is None else value, "quantity": quantity.name}
    return Point(value, one, {**row, "mean": float(numbers.mean()), "spread": spread, "seeds": len(numbers)})


def _find_value(run: Run, x: str | Callable[[Run], float]) -> float | None:
    if not isinstance(x, str):
        found = x(run)
        return found if np.isfinite(found) else None
    value = flatten_settings(run).get(x)
    return as_number(value) if is_number(value) else None


def _place(point: Point, values: Sequence[float], options: Options, shift: float) -> float:
    assert point.value is not None
    return values.index(point.value) + shift if options.spacing == "even" else point.value


def _draw_line(axes: Axes, points: Sequence[Point], places: Sequence[float], name: str, second: bool) -> None:
    look = points[0].one.look
    mean = list_numbers([point.row for point in points], "mean")
    spread = np.nan_to_num(list_numbers([point.row for point in points], "spread"))  # one seed: no bar
    bars = axes.errorbar(
        places,
        mean,
        yerr=spread,
        fmt=f"{look.marker}{'--' if second else look.line}",
        color=look.color,
        capsize=2,
        label="_" if second else name,
        markerfacecolor="white" if second else look.color,
    )
    mark(bars.get_children(), [name for point in points for name in point.one.names])


def _set_ticks(axes: Axes, values: Sequence[float], options: Options) -> None:
    """A tick at every value that was tried."""
    if not values:
        return
    if options.spacing == "log":
        axes.set_xscale("log")
    even = options.spacing == "even"
    axes.set_xticks(range(len(values)) if even else values, [f"{value:g}" for value in values])
    axes.minorticks_off()
    if even:
        axes.set_xlim(-0.3, len(values) - 0.7)


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say what bars are, and how values are spaced."""
    open_ = [one.name for one in shown if one.unfinished]
    return [
        "values evenly spaced, not to scale" if options.spacing == "even" else "",
        "error bars: standard deviation over seeds" if any(len(one.counted) > 1 for one in shown) else "",
        f"not final: {', '.join(open_)}" if open_ else "",
    ]


KIND = Kind(
    name="sweep",
    shows="a quantity against a setting",
    draw=draw,
    options=Options,
    studies=lambda options: (options.quantity.study,) if options.quantity.study else (),
    lines=True,
    describe=describe,
)
