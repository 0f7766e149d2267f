"""A plane through three models: training loss or test error, the models marked and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from landscape.plotting.style import label_axes, mark
from reports.panels.clients import name_client
from reports.panels.kind import Given, Kind, Shown
from reports.panels.loss.surface import choose_seed
from reports.plotting.loss.planes import PANELS, Plane, draw_plane, read_planes
from reports.rows import Row

NARROW = 0.4  # height to width, or the other way round


@dataclass(frozen=True)
class Options:
    """What is drawn.

    split: train for the training loss, test for the test error, own for the loss on the first participant's data.
    lowest: whether the lowest point gets a cross.
    classes: names of classes, by which clients are named.
    """

    split: str = "train"
    lowest: bool = False
    classes: tuple[str, ...] = ()


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw the plane through the series' models, or through three participants of the first one's last round."""
    plane = _find_plane(shown, given)
    if plane is None or options.split not in plane.data["split"].values:
        return []
    names, series = _name_models(plane, shown, options)
    rows = draw_plane(axes, plane, options.split, names, lowest=options.lowest)
    label_axes(axes, "weight distance", "weight distance")
    if _is_narrow(plane):
        axes.set_aspect("auto")
    mark(axes, list(dict.fromkeys(model.run for model in plane.models)))
    known = dict(zip(names, series, strict=True))
    return [{"series": known.get(str(row["model"]), series[0]), **row} for row in rows]


def _is_narrow(plane: Plane) -> bool:
    """Whether the models lie nearly in a line: then nothing could be seen if both axes had one scale."""
    ratio = float(np.ptp(plane.y) / np.ptp(plane.x))
    return not NARROW <= ratio <= 1 / NARROW


def _find_plane(shown: Sequence[Shown], given: Given) -> Plane | None:
    """Of the answer that compares the series; else the last of the first series' own."""
    if given.answer is not None and given.answer.study == "plane":
        planes = read_planes(given.answer)
        chosen = {run.name for run in choose_seed(shown).values()}
        return next((one for one in planes if one.models[0].run in chosen), planes[0] if planes else None)
    for run in choose_seed(shown).values():
        own = run.answer("plane")
        if own is not None and (planes := read_planes(own)):
            return planes[-1]
    return None


def _name_models(plane: Plane, shown: Sequence[Shown], options: Options) -> tuple[list[str], list[str]]:
    """What the markers say, and the series of each model: runs by the series' printed names."""
    owners = {run.name: one for one in shown for run in one.runs}
    runs = {run.name: run for one in shown for run in one.runs}
    names, series = [], []
    for model in plane.models:
        owner = owners.get(model.run)
        series.append(owner.name if owner is not None else shown[0].name)
        if model.client is not None:
            run = runs.get(model.run) or next(iter(runs.values()))
            names.append(name_client(run, model.client, options.classes))
        elif plane.through == "clients":
            names.append("global model")
        else:
            names.append(series[-1] if plane.through == "runs" else f"round {model.round}")
    return [name if names.count(name) == 1 else f"{name} ({place + 1})" for place, name in enumerate(names)], series


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say what was measured, on how many examples, and how levels are chosen."""
    plane = _find_plane(shown, given)
    if plane is None or options.split not in plane.data["split"].values:
        return []
    count = int(np.nan_to_num(plane.data["examples"].sel(split=options.split)))
    whose = f": {_name_models(plane, shown, options)[0][0]}" if options.split == "own" else ""
    away = float(plane.data["distance"].sel(model="global")) if "global" in plane.data["model"].values else None
    return [
        f"{PANELS[options.split][1]}{whose}, n = {count}",
        f"round {plane.models[0].round}",
        "the two axes have different scales" if _is_narrow(plane) else "",
        "levels in equal steps of the logarithm above the minimum",
        "cross: the lowest point of the grid" if options.lowest else "",
        f"star: the global model, projected, {away:.2g} away from the plane" if away is not None else "",
    ]


KIND = Kind(
    name="plane",
    shows="a plane through three models",
    draw=draw,
    options=Options,
    studies=lambda options: ("plane",),
    together=True,
    describe=describe,
    size=(3.6, 3.0),
)
