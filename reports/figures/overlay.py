"""Two loss surfaces in one picture, as in the papers: the baseline solid, the compared method as a net over it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from mpl_toolkits.mplot3d import Axes3D

from reports.figure import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.palette import assign_looks
from reports.plotting.relief import draw_colorbar, draw_net, draw_solid, finish_axes, make_norm, make_reliefs
from reports.plotting.scales import Scale, share_scale
from reports.plotting.scene import make_net_trace, make_scene, make_solid_trace
from reports.plotting.style import MAGNITUDE, join_caption, mark
from reports.plotting.surfaces import Surface, describe, find_comparison, name_surfaces

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
        lay_over(axes, base, one, scale, color, (reference, title))
        draw_colorbar(figure, axes, scale, NAME)
        traces = [
            make_solid_trace(base, scale, reference, chosen[base.run.algorithm].color, opacity=0.9),
            make_net_trace(one, scale, title, color),
        ]
        said = f"solid: {reference}; net: {title}; same range, heights and colours"
        drawn.append(
            Drawing(
                figure,
                [*base.rows(scale), *one.rows(scale)],
                join_caption([*describe([base, one], NAME, scale), said]),
                suffix=f"_{one.run.name}",
                interactive=make_scene(traces, base, scale, NAME),
            )
        )
    return drawn


def lay_over(axes: Axes3D, base: Surface, one: Surface, scale: Scale, color: str, names: tuple[str, str]) -> None:
    """Both surfaces, and a legend."""
    draw_solid(axes, base, scale, alpha=0.6)
    draw_net(axes, one, base, scale, color)
    finish_axes(axes, base, scale, "")
    heights = scale.heights(base.loss[np.isfinite(base.loss)])
    middle = to_hex(colormaps[MAGNITUDE](make_norm(scale)(np.median(heights) if len(heights) else 0.0)))
    keys = [
        Patch(facecolor=middle, alpha=0.6, label=f"{names[0]} (solid)"),
        Line2D([], [], color=color, label=f"{names[1]} (net)"),
    ]
    shown = axes.legend(handles=keys, loc="upper left", fontsize=9, frameon=False)
    for text, surface in zip(shown.get_texts(), (base, one), strict=True):
        mark(text, [surface.run.name])


FIGURE = Figure(
    name="overlay",
    topic="flat",
    title="A method's loss surface over the baseline's",
    reading="Where the net is below the solid surface the method has the lower loss; a wider net is a flatter minimum.",
    needs=("surface",),
    draw=draw,
    wants="runs of several methods, in one call of `landscape analyze RUN... --study surface`",
)
