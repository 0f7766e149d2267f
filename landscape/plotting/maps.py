"""Maps of two directions: filled contours with lines and numbers, holes hatched, one colour bar for all panels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, Colormap
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from landscape.plotting.scales import Array, Extend
from landscape.plotting.style import make_canvas

BRIGHT = 0.55  # of the colour map: lines are white below and black above


def make_maps(count: int, *, size: float = 2.9) -> tuple[Figure, list[Axes]]:
    """Make a figure with square panels in reading order."""
    columns = count if count < 4 else math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    figure, axes = make_canvas(rows, columns, width=size * columns + 1.1, height=size * rows + 0.2)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def fill_contours(
    axes: Axes, x: Array, y: Array, values: Array, levels: Array, extend: Extend, name: str
) -> ContourSet | None:
    """Fill bands between levels of values [x, y], each in its own colour; None where there are no numbers."""
    axes.patch.set(hatch="////", edgecolor="0.7", facecolor="white")  # seen where values are missing
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    axes.grid(False)
    if not np.isfinite(values).any():
        axes.text(0.5, 0.6, "no data", transform=axes.transAxes, ha="center", va="center")
        return None
    colors = colormaps[name].resampled(256)
    return axes.contourf(
        x,
        y,
        clip_to_levels(values, levels).T,
        levels,
        cmap=colors,
        norm=make_bands(levels, extend, colors),
        extend=extend,
    )


def make_bands(levels: Array, extend: Extend, colors: Colormap) -> BoundaryNorm:
    """Make as many colours as there are bands, evenly along the colour map."""
    return BoundaryNorm(levels, colors.N, extend=extend)


def clip_to_levels(values: Array, levels: Array) -> Array:
    """Clip infinite values beyond the last level: contours cannot show infinity."""
    far = 10 * (abs(levels[-1]) + abs(levels[0]) + 1)
    return np.where(np.isnan(values), np.nan, np.clip(values, -far, far))


def draw_contour_lines(axes: Axes, x: Array, y: Array, values: Array, levels: Array) -> ContourSet | None:
    """Draw some of the levels as lines with numbers on them; all of them where the values pass few."""
    finite = values[np.isfinite(values)]
    passed = (levels > finite.min()) & (levels < finite.max()) if len(finite) else np.zeros(len(levels), dtype=bool)
    if not passed.any():
        return None
    chosen = np.arange(len(levels)) % max(len(levels) // 6, 2) == 0
    some = levels[passed & chosen] if (passed & chosen).sum() > 2 else levels[passed]
    dark = np.searchsorted(levels, some) / max(len(levels) - 1, 1) > BRIGHT
    colors = ["0.1" if one else "white" for one in dark]
    lines = axes.contour(x, y, clip_to_levels(values, levels).T, some, colors=colors, linewidths=0.7)
    axes.clabel(lines, fontsize=7, fmt=lambda value: f"{value:g}", inline_spacing=2)
    return lines


def draw_bar(
    figure: Figure, axes: Sequence[Axes], drawn: ContourSet, ticks: tuple[Array, list[str]], name: str
) -> None:
    """Draw the colour bar with plain numbers: for all panels, or as high as the only one."""
    if len(axes) == 1:
        shown = figure.colorbar(drawn, cax=axes[0].inset_axes((1.03, 0.0, 0.05, 1.0)))
    else:
        shown = figure.colorbar(drawn, ax=list(axes), shrink=0.85, pad=0.02)
    shown.set_ticks(list(ticks[0]), labels=ticks[1])
    shown.ax.tick_params(labelsize=8)
    shown.ax.minorticks_off()
    shown.set_label(name)


def format_number(value: float) -> str:
    """Format a number briefly, with a true minus sign."""
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")


def mark_centre(axes: Axes) -> None:
    """Mark where the model itself is."""
    axes.plot(0, 0, "+", color="white", markersize=11, markeredgewidth=3.0)
    axes.plot(0, 0, "+", color="black", markersize=10, markeredgewidth=1.4)
