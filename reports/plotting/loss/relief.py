"""Surfaces in three dimensions for paper: solid or as a net, with shared heights and colours in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from numpy.typing import NDArray

from reports.plotting.loss.surfaces import Surface, name_axes
from reports.plotting.maps import format_number
from reports.plotting.scales import Scale
from reports.plotting.style import MAGNITUDE, STYLE, mark

LINES = 25  # of a net, or cells of a surface, in each direction: more can be neither seen nor drawn in time
VIEW = {"elev": 28, "azim": -55}


def make_reliefs(count: int, *, columns: int | None = None, size: float = 3.2) -> tuple[Figure, list[Axes3D]]:
    """Make a figure with axes in three dimensions, in reading order."""
    columns = columns or (count if count < 4 else math.ceil(math.sqrt(count)))
    rows = math.ceil(count / columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(size * columns + 1.2, 0.95 * size * rows + 0.2), layout="constrained")
        FigureCanvasAgg(figure)
        kind = {"projection": "3d", "computed_zorder": False}  # it would sort whole artists by their middles
        axes = figure.subplots(rows, columns, squeeze=False, subplot_kw=kind)
    flat = [one for row in axes for one in row]
    for spare in flat[count:]:
        spare.remove()
    return figure, flat[:count]


def draw_solid(axes: Axes3D, surface: Surface, scale: Scale, **look: Any) -> Any:
    """Draw a surface coloured by its height; nothing where there are no numbers."""
    heights = scale.heights(surface.loss)
    if not np.isfinite(heights).any():
        axes.text2D(0.5, 0.5, "no data", transform=axes.transAxes, ha="center")
        return None
    x, y = np.meshgrid(surface.x, surface.y, indexing="ij")
    drawn = axes.plot_surface(
        x, y, heights, cmap=MAGNITUDE, norm=make_norm(scale), rcount=2 * LINES, ccount=2 * LINES, zorder=2, **look
    )
    mark(drawn, [surface.run.name])
    return drawn


def draw_net(axes: Axes3D, surface: Surface, base: Surface, scale: Scale, color: str) -> list[Line3DCollection]:
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
    mark(drawn, [surface.run.name])
    return drawn


@dataclass(frozen=True, eq=False)
class Net:
    """A surface that is drawn as a net over another: its colour and its name."""

    surface: Surface
    color: str
    name: str


def lay_over(axes: Axes3D, base: Surface, nets: Sequence[Net], scale: Scale, name: str) -> None:
    """Draw a solid surface with others as nets over it, and a legend.

    base: the solid one. name: what the legend calls it.
    """
    draw_nets(axes, base, nets, scale)
    finish_axes(axes, base, scale, "")
    keys: list[Artist] = [Patch(facecolor=find_middle_color(base, scale), alpha=0.6, label=f"{name} (solid)")]
    keys += [Line2D([], [], color=net.color, label=f"{net.name} (net)") for net in nets]
    shown = axes.legend(handles=keys, loc="upper left", fontsize=9, frameon=False)
    for text, surface in zip(shown.get_texts(), [base, *(net.surface for net in nets)], strict=True):
        mark(text, [surface.run.name])


def draw_nets(axes: Axes3D, base: Surface, nets: Sequence[Net], scale: Scale) -> None:
    """Draw a solid surface, which lets nets over it shine through where they are lower."""
    draw_solid(axes, base, scale, alpha=0.6)
    for net in nets:
        draw_net(axes, net.surface, base, scale, net.color)


def add_key(axes: Axes3D, color: str, name: str, *, thick: bool = False) -> None:
    """Add a line to a legend below the figure: collections in three dimensions have none.

    thick: for a surface, not for a net.
    """
    look: dict[str, Any] = {"linewidth": 6, "alpha": 0.5} if thick else {"linewidth": 1.2}
    axes.plot([], [], [], color=color, label=name, **look)


def find_middle_color(surface: Surface, scale: Scale) -> str:
    """Find the colour at the middle of a surface's heights, for its key in a legend."""
    heights = scale.heights(surface.loss[np.isfinite(surface.loss)])
    return to_hex(colormaps[MAGNITUDE](make_norm(scale)(np.median(heights) if len(heights) else 0.0)))


def _cut_lines(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lines (line, point, number) cut at every point, without those that lack an end."""
    pieces = np.stack([lines[:, :-1], lines[:, 1:]], axis=2).reshape(-1, 2, lines.shape[-1])
    return pieces[np.isfinite(pieces[..., :3]).all(axis=(1, 2))]


def finish_axes(axes: Axes3D, surface: Surface, scale: Scale, title: str, *, small: bool = False) -> None:
    """Write heights as plain numbers, name every axis, and choose the same point of view for all panels.

    small: short names, for narrow panels beside a colour bar that names the heights.
    """
    values, texts = scale.ticks(6)
    axes.set_zlim(*scale.heights(np.array([scale.low, scale.high])))
    axes.set_zticks(scale.heights(values), texts)
    for axis, coordinates in ((axes.xaxis, surface.x), (axes.yaxis, surface.y)):
        places = [float(coordinates[0]), 0.0, float(coordinates[-1])]
        if small and axis is axes.yaxis:
            places = places[1:]  # its first number would stand upon the last one of the other axis
        axis.set_ticks(places, [format_number(place) for place in places])
    across, along = ("direction 1", "direction 2") if small else name_axes(surface)
    axes.set_xlabel(across, fontsize=7, labelpad=-6)
    axes.set_ylabel(along, fontsize=7, labelpad=-6)
    axes.set_zlabel("" if small else "loss", fontsize=7, labelpad=-5)
    axes.tick_params(labelsize=7, pad=-2)
    axes.set_title(title, fontsize=10, y=1.0)
    axes.view_init(**VIEW)
    axes.set_box_aspect((1, 1, 0.8), zoom=0.92)
    axes.patch.set_visible(False)  # it would cover labels of the panel beside it


def mark_panel(axes: Axes3D, run: str) -> None:
    """Mark a whole panel as a run's; its three axes are drawn outside the group of the panel."""
    mark([axes, axes.xaxis, axes.yaxis, axes.zaxis], [run])


def draw_colorbar(figure: Figure, axes: Any, scale: Scale, name: str) -> None:
    """Draw one colour bar for all panels."""
    values, texts = scale.ticks()
    bar = figure.colorbar(
        ScalarMappable(make_norm(scale), MAGNITUDE), ax=axes, extend=scale.extend, shrink=0.7, pad=0.06
    )
    bar.set_ticks(list(scale.heights(values)), labels=texts)
    bar.ax.tick_params(labelsize=8)
    bar.set_label(name)


def make_norm(scale: Scale) -> Normalize:
    """Make colours along the heights that are drawn."""
    return Normalize(*scale.heights(np.array([scale.low, scale.high])))
