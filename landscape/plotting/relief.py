"""Surfaces in three dimensions for paper: solid or as a net, with shared heights and colours in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection

from landscape.plotting.maps import format_number
from landscape.plotting.scales import Array, Scale
from landscape.plotting.style import MAGNITUDE, STYLE, PaperFigure, fit_panels

LINES = 25  # of a net, or cells of a surface, in each direction: more can be neither seen nor drawn in time
VIEW = {"elev": 28, "azim": -55}


class LossGrid(Protocol):
    """A loss over two directions: loss[i, j] at (x[i], y[j]), as `landscape.plane` returns it."""

    @property
    def x(self) -> Array:
        """Coordinates along the first direction."""

    @property
    def y(self) -> Array:
        """Coordinates along the second direction."""

    @property
    def loss(self) -> Array:
        """Indexed [x, y]."""


def make_reliefs(count: int, *, columns: int | None = None, size: float = 3.2) -> tuple[Figure, list[Axes3D]]:
    """Make a figure with axes in three dimensions, in reading order."""
    columns = columns or (count if count < 4 else math.ceil(math.sqrt(count)))
    rows = math.ceil(count / columns)
    rows, columns, width, height = fit_panels(rows, columns, size * columns + 1.2, 0.95 * size * rows + 0.2)
    with rc_context(STYLE):
        figure = PaperFigure(figsize=(width, height), layout="constrained")
        if columns > 1 and width / columns < 2:  # the layout does not see how far labels of narrow reliefs reach
            figure.get_layout_engine().set(w_pad=0.08)  # type: ignore[call-arg, union-attr]
        FigureCanvasAgg(figure)
        kind = {"projection": "3d", "computed_zorder": False}  # it would sort whole artists by their middles
        axes = figure.subplots(rows, columns, squeeze=False, subplot_kw=kind)
    flat = [one for row in axes for one in row]
    for spare in flat[count:]:
        spare.remove()
    return figure, flat[:count]


def fill_surface(axes: Axes3D, surface: LossGrid, scale: Scale, **look: object) -> Poly3DCollection | None:
    """Draw a surface coloured by its height; None where there are no numbers.

    look: further options of matplotlib's `plot_surface`.
    """
    heights = scale.heights(surface.loss)
    if not np.isfinite(heights).any():
        axes.text2D(0.5, 0.5, "no data", transform=axes.transAxes, ha="center")
        return None
    x, y = np.meshgrid(surface.x, surface.y, indexing="ij")
    return axes.plot_surface(
        x, y, heights, cmap=MAGNITUDE, norm=make_norm(scale), rcount=2 * LINES, ccount=2 * LINES, zorder=2, **look
    )


def frame_surface(axes: Axes3D, surface: LossGrid, scale: Scale, color: str) -> list[Artist]:
    """Draw the edge of a surface in one colour, which tells whose it is: its own colours tell heights."""
    x, y, heights = surface.x, surface.y, scale.heights(surface.loss)
    sides = [
        (x, np.full(len(x), y[0]), heights[:, 0]),
        (x, np.full(len(x), y[-1]), heights[:, -1]),
        (np.full(len(y), x[0]), y, heights[0]),
        (np.full(len(y), x[-1]), y, heights[-1]),
    ]
    return [line for side in sides for line in axes.plot(*side, color=color, linewidth=1.6, zorder=4)]


def draw_mesh(axes: Axes3D, surface: LossGrid, base: LossGrid, scale: Scale, color: str) -> list[Line3DCollection]:
    """Draw a surface as a net; where it is below the solid surface of `base`, it shines through."""
    heights, ground = scale.heights(surface.loss), scale.heights(base.loss)
    x, y = np.meshgrid(surface.x, surface.y, indexing="ij")
    points = np.stack([x, y, heights, heights - ground], axis=-1)
    every = [max(-(-size // LINES), 1) for size in heights.shape]
    along, across = points[:, :: every[1]].swapaxes(0, 1), points[:: every[0]]
    pieces = np.concatenate([_cut_lines(along), _cut_lines(across)])
    above = pieces[..., 3].mean(axis=1) >= 0
    drawn = []
    for some, zorder in ((~above, 1), (above, 3)):
        if some.any():
            lines = Line3DCollection(pieces[some, :, :3], colors=color, linewidths=0.9, capstyle="round", zorder=zorder)
            drawn.append(axes.add_collection3d(lines))
    return drawn


def _cut_lines(lines: Array) -> Array:
    """Lines (line, point, number) cut at every point, without those that lack an end."""
    pieces = np.stack([lines[:, :-1], lines[:, 1:]], axis=2).reshape(-1, 2, lines.shape[-1])
    return pieces[np.isfinite(pieces[..., :3]).all(axis=(1, 2))]


def find_middle_color(surface: LossGrid, scale: Scale) -> str:
    """Find the colour at the middle of a surface's heights, for its key in a legend."""
    heights = scale.heights(surface.loss[np.isfinite(surface.loss)])
    return to_hex(colormaps[MAGNITUDE](make_norm(scale)(np.median(heights) if len(heights) else 0.0)))


def label_relief(
    axes: Axes3D,
    surface: LossGrid,
    scale: Scale,
    names: Sequence[str],
    title: str = "",
    *,
    skip_first: bool = False,
) -> None:
    """Write heights as plain numbers, name every axis, and choose the same point of view for all panels.

    names: of the two directions and of the height.
    skip_first: leave out the first number of the second direction: in a narrow panel it would stand upon another.
    """
    values, texts = scale.ticks(6)
    axes.set_zlim(*scale.heights(np.array([scale.low, scale.high])))
    axes.set_zticks(scale.heights(values), texts)
    for axis, coordinates in ((axes.xaxis, surface.x), (axes.yaxis, surface.y)):
        places = [float(coordinates[0]), 0.0, float(coordinates[-1])]
        if skip_first and axis is axes.yaxis:
            places = places[1:]
        axis.set_ticks(places, [format_number(place) for place in places])
    across, along, height = names
    axes.set_xlabel(across, fontsize=7, labelpad=-6)
    axes.set_ylabel(along, fontsize=7, labelpad=-6)
    axes.set_zlabel(height, fontsize=7, labelpad=-5)
    axes.tick_params(labelsize=7, pad=-2)
    axes.set_title(title, fontsize=10, y=1.0)
    axes.view_init(**VIEW)
    axes.set_box_aspect((1, 1, 0.8), zoom=0.92)
    axes.patch.set_visible(False)  # it would cover labels of the panel beside it


def draw_colorbar(figure: Figure, axes: Axes | Sequence[Axes], scale: Scale, name: str) -> None:
    """Draw one colour bar for all panels."""
    values, texts = scale.ticks()
    bar = figure.colorbar(
        ScalarMappable(make_norm(scale), MAGNITUDE), ax=axes, extend=scale.extend, shrink=0.7, pad=0.06
    )
    bar.set_ticks(list(scale.heights(values)), labels=texts)
    bar.ax.tick_params(labelsize=8)
    bar.set_label(f"{name} (log scale)" if scale.log else name)


def make_norm(scale: Scale) -> Normalize:
    """Make colours along the heights that are drawn."""
    return Normalize(*scale.heights(np.array([scale.low, scale.high])))
