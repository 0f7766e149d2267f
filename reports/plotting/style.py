"""Panels, labels, captions and marks in the same style in every figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

MAGNITUDE, SIGNED = "viridis", "RdBu_r"  # maps for sizes, and for values with a sign, centred at zero
WIDTH, HEIGHT = 6.4, 4.0  # inches: one column and a half of a paper
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
TICKS = 5  # spaces between numbers along an axis at most: measuring and drawing ticks is half the work of a figure
MARK = "runs:"  # begins the id of everything that belongs to runs
STYLE: Any = {
    "figure.dpi": 150,  # for laying out as for PNG: the size of every word is measured once for both
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "pdf.fonttype": 42,  # text stays text: journals refuse Type 3 fonts
    "svg.fonttype": "none",
    "svg.hashsalt": "fl-landscape",  # names inside the file do not change from one time to the next
}


def make_canvas(
    rows: int = 1, columns: int = 1, *, width: float = WIDTH, height: float = HEIGHT
) -> tuple[Figure, list[Axes]]:
    """Make a figure with axes in reading order, without pyplot: no window system, no state left behind.

    rows, columns: how many axes.
    width, height: of the whole figure, in inches.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
    for one in axes.flat:
        one.locator_params(nbins=TICKS)
    return figure, [one for row in axes for one in row]


def label_axes(axes: Axes, x: str, y: str, title: str = "") -> None:
    """Name both axes, and the panel if there is a title."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if title:
        axes.set_title(title, fontsize=10, y=1.0)  # no place given: matplotlib measures all ticks again to find one


def write_plain_numbers(axis: Axis) -> None:
    """Write plain numbers at 1, 2 and 5 along a logarithmic axis, legible also where a decade is not filled."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def write_powers(axis: Axis) -> None:
    """Write powers of ten along a logarithmic axis as plain text: as formulas they took longer than the curves."""

    def name(value: float, _: int) -> str:
        power = round(math.log10(abs(value))) if value else 0
        if not value or not math.isclose(abs(value), 10.0**power):
            return f"{value:g}"
        return f"{'-' if value < 0 else ''}10{str(power).translate(RAISED)}"

    axis.set_major_formatter(FuncFormatter(name))


def draw_legend(axes: Axes, **where: Any) -> None:
    """Draw a small legend without a frame.

    where: options of matplotlib's `legend`.
    """
    axes.legend(**{"frameon": False, "fontsize": 8, **where})


def mark(artists: Any, runs: Iterable[str]) -> None:
    """Record which runs an artist shows, in the SVG too: the page hides it when all of them are hidden.

    artists: one artist, or any nesting of lists of them, as matplotlib's calls return.
    runs: their names; quoted, because spaces separate them.
    """
    if isinstance(artists, (list, tuple)):
        for one in artists:
            mark(one, runs)
    elif artists is not None:
        artists.set_gid(f"{MARK}{' '.join(map(quote, runs))}")


def join_caption(parts: Sequence[str]) -> str:
    """Join the parts of a caption, without empty ones."""
    return "; ".join(part for part in parts if part)
