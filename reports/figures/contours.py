"""Loss and test error around the global model as maps: one panel per run, all with the same levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.figure import Drawn, Figure
from reports.plotting.maps import bar, centre, filled, lined, maps
from reports.plotting.scales import Scale, linear, shared
from reports.plotting.style import MAGNITUDE, caption, label, mark
from reports.plotting.surfaces import Surface, axis_names, describe, global_surfaces, titles
from reports.runs import Collection, Run


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    train, test = (global_surfaces(runs, everything, split) for split in ("train", "test"))
    drawn = []
    if train:
        drawn.append(_panels(train, everything, "loss", shared(one.loss for one in train), "training loss", ""))
    if test and any(np.isfinite(one.error).any() for one in test):
        percent = linear(100 * one.error for one in test)
        drawn.append(_panels(test, everything, "error", percent, "test error (%)", "_test_error"))
    return drawn


def _panels(
    surfaces: Sequence[Surface], everything: Collection, field: str, scale: Scale, name: str, suffix: str
) -> Drawn:
    figure, panels = maps(len(surfaces))
    found = []
    for axes, one, title in zip(panels, surfaces, titles(surfaces, everything), strict=True):
        values = one.loss if field == "loss" else 100 * one.error
        found.append(filled(axes, one.x, one.y, values, scale.levels, scale.extend, MAGNITUDE))
        lined(axes, one.x, one.y, values, scale.levels)
        centre(axes)
        label(axes, *axis_names(one), title)
        mark(axes, [one.run.name])
    shown = next((one for one in found if one is not None), None)
    if shown is not None:
        bar(figure, panels, shown, scale.ticks(12), name)
    said = [*describe(surfaces, name, scale), "cross: the model itself"]
    return Drawn(figure, [row for one in surfaces for row in one.rows(scale, field)], caption(said), suffix)


FIGURE = Figure(
    name="contours",
    topic="flat",
    title="Maps of the loss around the global model",
    reading="The same colour is the same loss in all panels: the wider the dark region, the flatter the minimum.",
    needs=("surface",),
    draw=draw,
)
