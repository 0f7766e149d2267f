"""Loss surfaces in three dimensions: one panel per run, all with the same heights and colours."""

from __future__ import annotations

from collections.abc import Sequence

from landscape.plotting.relief import draw_colorbar, make_reliefs
from landscape.plotting.scales import share_scale
from landscape.plotting.scene import make_scene, make_solid_trace
from landscape.plotting.style import join_caption
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.palette import assign_looks
from reports.plotting.loss.relief import draw_solid, finish_axes, mark_panel
from reports.plotting.loss.surfaces import (
    add_minimum,
    belongs_to,
    describe,
    find_global_surfaces,
    name_axes,
    name_surfaces,
)

NAME = "training loss"


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw the surface of every run in a panel of its own, with shared heights and colours."""
    surfaces = find_global_surfaces(runs, everything)
    if not surfaces:
        return []
    scale, names = share_scale(one.loss for one in surfaces), name_surfaces(surfaces, everything)
    chosen = assign_looks(run.algorithm for run in everything.runs)
    figure, panels = make_reliefs(len(surfaces))
    traces = []
    for number, (axes, one, title) in enumerate(zip(panels, surfaces, names, strict=True)):
        draw_solid(axes, one, scale, rasterized=True)
        finish_axes(axes, one, scale, add_minimum(title, one, scale))
        mark_panel(axes, one.run.name)
        visibility = {"visible": True if number < 2 else "legendonly"}
        traces.append(
            make_solid_trace(one, scale, title, chosen[one.run.algorithm].color, **belongs_to(one), **visibility)
        )
    draw_colorbar(figure, panels, scale, NAME)
    return [
        Drawing(
            figure,
            [row for one in surfaces for row in one.rows(scale)],
            join_caption(describe(surfaces, NAME, scale)),
            interactive=make_scene(traces, name_axes(surfaces[0]), scale, NAME),
        )
    ]


FIGURE = Figure(
    name="surface",
    topic="flat",
    title="Loss around the global model",
    reading="A wide, low bowl is a flat minimum; heights and colours are the same in all panels. Along a logarithmic "
    "axis a bowl of lower loss looks steeper than an equally curved higher one: compare the lowest losses first.",
    needs=("surface",),
    draw=draw,
)
