"""Axes that suit their numbers: logarithmic where these span decades, whole rounds, one legend for all panels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from textwrap import fill
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray

from landscape.plotting.style import write_plain_numbers, write_powers
from reports.plotting.heat import mark_empty

WIDE = 10.0  # largest over smallest number from which an axis is logarithmic
LONG = 300.0  # from which only powers of ten are written beside it
LETTER, HANDLE = 0.062, 0.5  # inches: of a small letter, and of what stands before a name in a legend
LINE = 0.17  # inches: of a line in a legend
Where = Literal["outside lower center", "outside upper center"]  # of legends
TINY = 1e-3  # below, plain numbers are mostly zeros


def select_finite(values: ArrayLike) -> NDArray[np.float64]:
    """Select the finite numbers, as one flat array."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    return flat[np.isfinite(flat)]


def spans_decades(values: ArrayLike) -> bool:
    """Whether sizes differ so much that a linear axis would hide the small ones."""
    sizes = np.abs(select_finite(values))
    sizes = sizes[sizes > 0]
    return len(sizes) > 1 and bool(sizes.max() / sizes.min() > WIDE)


def fit_axis(axes: Axes, which: str, values: ArrayLike, *, always: bool = False) -> None:
    """Fit an axis to numbers: logarithmic if they span decades, linear around zero if some are not positive.

    A panel without any number says so.

    which: "x" or "y".
    values: all numbers along the axis.
    always: logarithmic even if they do not span decades, for panels that are compared.
    """
    numbers = select_finite(values)
    if not len(numbers):
        mark_empty(axes)
    if not spans_decades(numbers) and not (always and (numbers != 0).any()):
        return
    change, axis = (axes.set_xscale, axes.xaxis) if which == "x" else (axes.set_yscale, axes.yaxis)
    sizes = np.abs(numbers[numbers != 0])
    if (numbers <= 0).any():
        change("symlog", linthresh=sizes.min())
        write_powers(axis)
        return
    change("log")
    if sizes.max() / sizes.min() <= LONG and sizes.min() >= TINY:
        write_plain_numbers(axis)
    else:
        axis.set_major_locator(LogLocator(numticks=8 if which == "y" else 5))  # panels may be narrow
        write_powers(axis)
        axis.set_minor_formatter(NullFormatter())


def use_whole_rounds(axes: Axes) -> None:
    """Put ticks at whole rounds only along the x axis."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))


def draw_shared_legend(figure: Figure, columns: int = 4) -> None:
    """Draw one legend below all panels, with every name once.

    columns: how many at most; fewer where they do not fit.
    """
    named: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    if named:
        _place_legend(figure, named, "outside lower center", columns)


def draw_notes(figure: Figure, notes: Mapping[str, Artist]) -> None:
    """Draw a legend above all panels with what must be known before they are read; the figure grows by its height.

    notes: lines, and what stands before them. Lines that are wider than the figure are folded.
    """
    if notes:
        widest = int((figure.get_figwidth() - HANDLE) / LETTER)
        folded = {fill(line, widest, subsequent_indent="  "): key for line, key in notes.items()}
        columns = _place_legend(figure, folded, "outside upper center", 2)
        lines = sum(line.count("\n") + 1 for line in folded)
        figure.set_figheight(figure.get_figheight() + LINE * math.ceil(lines / columns))


def _place_legend(figure: Figure, named: Mapping[str, Artist], where: Where, columns: int) -> int:
    """As many columns as fit, `columns` at most; returns how many."""
    longest = LETTER * max(map(len, named)) + HANDLE
    columns = max(1, min(columns, int(figure.get_figwidth() / longest)))
    figure.legend(list(named.values()), list(named), loc=where, ncols=columns, frameon=False, fontsize=8)
    return columns
