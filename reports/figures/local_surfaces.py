"""A participant's own model, seen from its own data and from everyone's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from landscape.plotting.relief import draw_colorbar, make_reliefs
from landscape.plotting.scales import Scale, share_scale
from landscape.plotting.scene import make_net_trace, make_scene, make_solid_trace
from landscape.plotting.style import join_caption
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.palette import assign_looks
from reports.plotting.loss.relief import draw_solid, finish_axes, mark_panel
from reports.plotting.loss.surfaces import Surface, belongs_to, describe, find_local_surfaces, name_axes
from reports.variants import make_titles

NAME = "training loss"
MOST = 3  # participants; further ones are in the file


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a picture for each run: local models on their own data, and on everyone's."""
    pairs = find_local_surfaces(runs, everything)
    chosen = assign_looks(run.algorithm for run in everything.runs)
    of_run = {one.run.name: [pair for pair in pairs if pair[0].run is one.run][:MOST] for one, _ in pairs}
    scale = share_scale(one.loss for some in of_run.values() for pair in some for one in pair) if pairs else None
    named = make_titles(runs, everything)
    return [_draw_run(some, scale, chosen[some[0][0].run.algorithm].color, named) for some in of_run.values() if scale]


def _draw_run(pairs: Sequence[tuple[Surface, Surface]], scale: Scale, color: str, named: Mapping[str, str]) -> Drawing:
    run = pairs[0][0].run
    figure, panels = make_reliefs(2 * len(pairs), columns=2)
    traces = []
    for number, pair in enumerate(pairs):
        for axes, one in zip(panels[2 * number : 2 * number + 2], pair, strict=True):
            data = "its own data" if one.view == "own" else "everyone's data"
            draw_solid(axes, one, scale, rasterized=True)
            finish_axes(axes, one, scale, f"client {one.client} on {data} (n = {one.examples})")
        visibility = {"visible": True if number == 0 else "legendonly"}
        own, everyone = (f"client {one.client}, {one.view}" for one in pair)
        traces.append(make_solid_trace(pair[0], scale, own, color, **belongs_to(pair[0]), **visibility))
        traces.append(make_net_trace(pair[1], scale, everyone, color, **belongs_to(pair[1]), **visibility))
    for axes in panels:
        mark_panel(axes, run.name)
    draw_colorbar(figure, panels, scale, NAME)
    surfaces = [one for pair in pairs for one in pair]
    remark = "the same heights for all methods; to turn: solid on the client's own data, net on everyone's"
    return Drawing(
        figure,
        [row for one in surfaces for row in one.rows(scale)],
        join_caption([named[run.name], *describe(surfaces, NAME, scale), remark]),
        suffix=f"_{run.name}",
        interactive=make_scene(traces, name_axes(surfaces[0]), scale, NAME),
    )


FIGURE = Figure(
    name="local_surfaces",
    topic="agree",
    title="Loss around clients' models, on their own data and on everyone's",
    reading="Low and wide on the left but high on the right: a minimum of the client alone, not of everyone.",
    needs=("surface",),
    draw=draw,
    wants="--set surface.clients=2",
)
