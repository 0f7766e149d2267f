"""Loss and test error around the global model as maps: one panel per run, all with the same levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from landscape.plotting.maps import draw_bar, draw_contour_lines, fill_contours, make_maps, mark_centre
from landscape.plotting.scales import Scale, make_linear_scale, share_scale
from landscape.plotting.style import MAGNITUDE, join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.loss.surfaces import Surface, describe, find_global_surfaces, name_axes, name_surfaces


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw maps of the training loss and of the test error, a panel for each run."""
    train, test = (find_global_surfaces(runs, everything, split) for split in ("train", "test"))
    drawn = []
    if train:
        drawn.append(
            _draw_panels(train, everything, "loss", share_scale(one.loss for one in train), "training loss", "")
        )
    if test and any(np.isfinite(one.error).any() for one in test):
        percent = make_linear_scale(100 * one.error for one in test)
        drawn.append(_draw_panels(test, everything, "error", percent, "test error (%)", "_test_error"))
    return drawn


def _draw_panels(
    surfaces: Sequence[Surface], everything: Collection, field: str, scale: Scale, name: str, suffix: str
) -> Drawing:
    figure, panels = make_maps(len(surfaces))
    fills = []
    for axes, one, title in zip(panels, surfaces, name_surfaces(surfaces, everything), strict=True):
        values = one.loss if field == "loss" else 100 * one.error
        fills.append(fill_contours(axes, one.x, one.y, values, scale.levels, scale.extend, MAGNITUDE))
        draw_contour_lines(axes, one.x, one.y, values, scale.levels)
        mark_centre(axes)
        label_axes(axes, *name_axes(one), title)
        mark(axes, [one.run.name])
    shown = next((one for one in fills if one is not None), None)
    if shown is not None:
        draw_bar(figure, panels, shown, scale.ticks(12), name)
    remarks = [*describe(surfaces, name, scale), "cross: the model itself"]
    return Drawing(figure, [row for one in surfaces for row in one.rows(scale, field)], join_caption(remarks), suffix)


FIGURE = Figure(
    name="contours",
    topic="flat",
    title="Maps of the loss around the global model",
    reading="The same colour is the same loss in all panels: the wider the dark region, the flatter the minimum.",
    needs=("surface",),
    draw=draw,
)
