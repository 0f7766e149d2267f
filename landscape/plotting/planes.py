"""A surface over two directions: as contours, in three dimensions, or to turn with the mouse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from mpl_toolkits.mplot3d import Axes3D

from landscape.plotting.maps import draw_bar, draw_contour_lines, fill_contours
from landscape.plotting.records import open_axes, open_relief_axes
from landscape.plotting.relief import draw_colorbar, fill_surface, label_relief
from landscape.plotting.scales import Array, share_scale
from landscape.plotting.style import MAGNITUDE, OKABE_ITO, STYLE, label_axes

NAMES = ("direction 1", "direction 2")


@dataclass(frozen=True, eq=False)
class Heights:
    """Values over two directions, indexed [x, y]."""

    x: Array
    y: Array
    loss: Array


def draw_contours(axes: Axes | None, heights: Heights, name: str) -> Axes:
    """Draw filled contours with lines, numbers and a colour bar; holes are hatched.

    axes: None for a new figure. name: of the quantity.
    """
    axes = open_axes(axes, size=(4.8, 4.0), equal=True)
    scale = share_scale([heights.loss])
    with rc_context(STYLE):
        shown = fill_contours(axes, heights.x, heights.y, heights.loss, scale.levels, scale.extend, MAGNITUDE)
        draw_contour_lines(axes, heights.x, heights.y, heights.loss, scale.levels)
        figure = axes.get_figure(root=True)
        if shown is not None and figure is not None:
            draw_bar(figure, [axes], shown, scale.ticks(), name)
        label_axes(axes, *NAMES)
    return axes


def draw_relief(axes: Axes | None, heights: Heights, name: str) -> Axes3D:
    """Draw a surface in three dimensions.

    axes: None for a new figure, else axes in three dimensions. name: of the quantity.
    """
    relief = open_relief_axes(axes)
    scale = share_scale([heights.loss])
    with rc_context(STYLE):
        fill_surface(relief, heights, scale)
        label_relief(relief, heights, scale, (*NAMES, ""))
        draw_colorbar(relief.get_figure(root=True), relief, scale, name)
    return relief


def make_plotly(axes: Any, heights: Heights, name: str) -> Any:
    """Make a plotly figure.

    axes: a plotly figure to which the surface is added; None for a new one. name: of the quantity.
    """
    from plotly import graph_objects

    from landscape.plotting.scene import make_scene, make_solid_trace

    scale = share_scale([heights.loss])
    trace = make_solid_trace(heights, scale, name, OKABE_ITO[0])
    if axes is not None:
        axes.add_trace(trace)
        return axes
    return graph_objects.Figure(make_scene([{**trace, "showlegend": False}], NAMES, scale, name))


Draw = Callable[[Any, Heights, str], Any]  # onto axes, or a figure of plotly
KINDS: dict[str, Draw] = {
    "contour": draw_contours,
    "3d": draw_relief,
    "plotly": make_plotly,
}
