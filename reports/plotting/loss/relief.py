"""Loss surfaces of runs in three dimensions: solid or as a net, each marked as its run's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection

from landscape.plotting.relief import draw_mesh, fill_surface, find_middle_color, frame_surface, label_relief
from landscape.plotting.scales import Scale
from landscape.plotting.style import mark
from reports.plotting.loss.surfaces import Surface, add_minimum, name_axes


def draw_solid(axes: Axes3D, surface: Surface, scale: Scale, **look: object) -> Poly3DCollection | None:
    """Draw a run's surface coloured by its height; nothing where there are no numbers."""
    drawn = fill_surface(axes, surface, scale, **look)
    mark(drawn, [surface.run.name])
    return drawn


def draw_net(axes: Axes3D, surface: Surface, base: Surface, scale: Scale, color: str) -> list[Line3DCollection]:
    """Draw a run's surface as a net; where it is below the solid surface of `base`, it shines through."""
    drawn = draw_mesh(axes, surface, base, scale, color)
    mark(drawn, [surface.run.name])
    return drawn


@dataclass(frozen=True, eq=False)
class Net:
    """A surface that is drawn as a net over another: its colour and its name."""

    surface: Surface
    color: str
    name: str


def lay_over(axes: Axes3D, base: Surface, nets: Sequence[Net], scale: Scale, name: str, color: str) -> None:
    """Draw a solid surface, framed in its method's colour, with others as nets over it, and a legend.

    base: the solid one. name: what the legend calls it. color: of its frame.
    """
    draw_nets(axes, base, nets, scale)
    mark(frame_surface(axes, base, scale, color), [base.run.name])
    finish_axes(axes, base, scale, "")
    middle = find_middle_color(base, scale)
    keys: list[Artist] = [
        Patch(
            facecolor=f"{middle}99", edgecolor=color, linewidth=1.6, label=add_minimum(f"{name} (solid)", base, scale)
        )
    ]
    keys += [
        Line2D([], [], color=net.color, label=add_minimum(f"{net.name} (net)", net.surface, scale)) for net in nets
    ]
    figure = axes.get_figure(root=True)
    assert figure is not None
    shown = figure.legend(handles=keys, loc="outside upper left", fontsize=9, frameon=False)
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
    width, alpha = (6, 0.5) if thick else (1.2, None)
    axes.plot([], [], [], color=color, label=name, linewidth=width, alpha=alpha)


def finish_axes(axes: Axes3D, surface: Surface, scale: Scale, title: str, *, small: bool = False) -> None:
    """Name every axis and write heights as plain numbers.

    small: short names, for narrow panels beside a colour bar that names the heights.
    """
    names = ("direction 1", "direction 2", "") if small else (*name_axes(surface), "loss")
    label_relief(axes, surface, scale, names, title, skip_first=small)


def mark_panel(axes: Axes3D, run: str) -> None:
    """Mark a whole panel as a run's; its three axes are drawn outside the group of the panel."""
    mark([axes, axes.xaxis, axes.yaxis, axes.zaxis], [run])
