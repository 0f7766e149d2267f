"""Two loss surfaces in one picture, as in the papers: the baseline solid, the compared method as a net over it."""

from __future__ import annotations

from collections.abc import Sequence

from landscape.plotting.relief import draw_colorbar, make_reliefs
from landscape.plotting.scales import share_scale
from landscape.plotting.scene import make_net_trace, make_scene, make_solid_trace
from landscape.plotting.style import join_caption
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.palette import assign_looks
from reports.plotting.loss.relief import Net, lay_over
from reports.plotting.loss.surfaces import belongs_to, describe, find_comparison, name_axes, name_surfaces

NAME = "training loss"


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a picture for each method: its surface as a net over that of the baseline."""
    found = find_comparison(runs, everything)
    if found is None:
        return []
    base, others = found
    chosen = assign_looks(run.algorithm for run in everything.runs)
    scale = share_scale(one.loss for one in (base, *others))  # the same in every drawing, so that they can be compared
    reference, *names = name_surfaces([base, *others], everything)
    drawn = []
    for one, title in zip(others, names, strict=True):
        color = chosen[one.run.algorithm].color
        figure, (axes,) = make_reliefs(1, size=4.6)
        lay_over(axes, base, [Net(one, color, title)], scale, reference, chosen[base.run.algorithm].color)
        draw_colorbar(figure, axes, scale, NAME)
        traces = [
            make_solid_trace(base, scale, reference, chosen[base.run.algorithm].color, opacity=0.9, **belongs_to(base)),
            make_net_trace(one, scale, title, color, **belongs_to(one)),
        ]
        said = f"solid: {reference}; net: {title}; same range, heights and colours"
        drawn.append(
            Drawing(
                figure,
                [*base.rows(scale), *one.rows(scale)],
                join_caption([*describe([base, one], NAME, scale), said]),
                suffix=f"_{one.run.name}",
                interactive=make_scene(traces, name_axes(base), scale, NAME),
            )
        )
    return drawn


FIGURE = Figure(
    name="overlay",
    topic="flat",
    title="A method's loss surface over the baseline's",
    reading="Where the net is below the solid surface the method has the lower loss; a wider net is a flatter minimum. "
    "Along a logarithmic axis the lower of two equally curved bowls looks steeper.",
    needs=("surface",),
    draw=draw,
    wants="runs of several methods, in one call of `landscape analyze RUN... --study surface`",
)
