"""Small multiples and heat maps: as many panels as there are runs, missing cells hatched, one colour bar for all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike

from landscape.plotting.style import MAGNITUDE, break_line, make_canvas
from reports.names import has_class_names, name_class

THIN = 0.2  # inches: the colour bar
LETTER = 0.085  # inches of a letter beside the bar, and a share of what stands above and below it
TICKS = 10  # labelled cells along one side of a heat map


def make_panels(count: int, *, columns: int = 4, width: float = 2.7, height: float = 2.7) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels in reading order.

    count: how many panels.
    columns: how many in a row at most.
    width, height: of each panel, in inches.
    """
    across = min(count, columns)
    down = ceil(count / across)
    figure, axes = make_canvas(down, across, width=max(width * across, 4.0), height=height * down)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def draw_heat(
    axes: Axes,
    values: ArrayLike,
    x: Iterable[object],
    y: Iterable[object],
    limits: tuple[float, float],
    cmap: str = MAGNITUDE,
) -> AxesImage:
    """Cells coloured by value (y, x), each side labelled by what the cells stand for; NaN hatched."""
    cells = np.ma.masked_invalid(np.asarray(values, dtype=np.float64))
    axes.grid(False)
    axes.set_facecolor("white")
    axes.patch.set(hatch="////", edgecolor="0.6")  # shows through where a cell is missing
    image = axes.imshow(cells, cmap=cmap, vmin=limits[0], vmax=limits[1], aspect="auto", origin="lower")
    for set_ticks, names in ((axes.set_xticks, list(x)), (axes.set_yticks, list(y))):
        places = range(0, len(names), ceil(len(names) / TICKS) or 1)
        set_ticks(list(places), [str(names[place]) for place in places])
    return image


def list_class_names(data: str, numbers: Iterable[int], given: Sequence[str] = ()) -> list[str]:
    """List the names of classes for an axis that is called "class"; their numbers where names are not known.

    data: the data set.
    numbers: of the classes.
    given: the names that the data set itself gives, if it does.
    """
    known = bool(given) or has_class_names(data)
    return [name_class(data, int(one), given) if known else str(one) for one in numbers]


def write_values(axes: Axes, image: AxesImage, said: str) -> None:
    """Write its value into every known cell, dark on bright and bright on dark.

    said: the format specification of a value, such as ".1f".
    """
    cells = image.get_array()
    assert cells is not None  # an image always has numbers
    for (row, column), value in np.ndenumerate(np.ma.filled(cells, np.nan)):
        if np.isfinite(value):
            red, green, blue, _ = image.cmap(image.norm(value))
            bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
            axes.text(
                column, row, format(value, said), ha="center", va="center", fontsize=8, color="k" if bright else "w"
            )


def find_span(arrays: Iterable[ArrayLike]) -> tuple[float, float] | None:
    """Find the smallest and the largest finite value of all arrays; None where there is none."""
    flat = np.concatenate([np.ravel(np.asarray(one, dtype=np.float64)) for one in arrays] or [np.empty(0)])
    known = flat[np.isfinite(flat)]
    return (float(known.min()), float(known.max())) if len(known) else None


def draw_colour_bar(figure: Figure, image: ScalarMappable, axes: Sequence[Axes], said: str, **more: Any) -> None:
    """Draw one colour bar for all panels.

    image: what the colours belong to.
    said: the label beside the bar.
    more: further options of matplotlib's `colorbar`.
    """
    aspect = max(figure.get_figheight() / THIN, 20.0)  # as thin in a high figure as in a low one
    if len(said) * LETTER > figure.get_figheight():
        said = break_line(said)
    bar = figure.colorbar(image, ax=list(axes), label=said, aspect=aspect, **more)
    bar.outline.set_visible(False)


def mark_empty(axes: Axes) -> None:
    """Write "no data" into an empty panel."""
    axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", va="center", color="0.5")
