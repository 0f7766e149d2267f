"""Loss surfaces in three dimensions: one panel per run, all with the same heights and colours."""

from __future__ import annotations

from collections.abc import Sequence

from reports.figure import Drawn, Figure
from reports.palette import assign_looks
from reports.plotting.relief import colorbar, finish, owned, reliefs, solid
from reports.plotting.scales import shared
from reports.plotting.scene import scene, solid_trace
from reports.plotting.style import caption
from reports.plotting.surfaces import describe, global_surfaces, titles
from reports.runs import Collection, Run

NAME = "training loss"


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    surfaces = global_surfaces(runs, everything)
    if not surfaces:
        return []
    scale, names = shared(one.loss for one in surfaces), titles(surfaces, everything)
    chosen = assign_looks(run.algorithm for run in everything.runs)
    figure, panels = reliefs(len(surfaces))
    traces = []
    for number, (axes, one, title) in enumerate(zip(panels, surfaces, names, strict=True)):
        solid(axes, one, scale, rasterized=True)
        finish(axes, one, scale, title)
        owned(axes, one.run.name)
        seen = {"visible": True if number < 2 else "legendonly"}
        traces.append(solid_trace(one, scale, title, chosen[one.run.algorithm].color, **seen))
    colorbar(figure, panels, scale, NAME)
    return [
        Drawn(
            figure,
            [row for one in surfaces for row in one.rows(scale)],
            caption(describe(surfaces, NAME, scale)),
            interactive=scene(traces, surfaces[0], scale, NAME),
        )
    ]


FIGURE = Figure(
    name="surface",
    topic="flat",
    title="Loss around the global model",
    reading="A wide, low bowl is a flat minimum; heights and colours are the same in all panels.",
    needs=("surface",),
    draw=draw,
)
