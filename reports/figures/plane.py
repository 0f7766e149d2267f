"""The plane through three models in weight distances: training loss and test error side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from landscape.plotting.style import join_caption, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.names import name_split
from reports.plotting.loss.planes import PANELS, Plane, draw_plane, read_planes
from reports.plotting.loss.surfaces import sort_runs
from reports.rows import Row
from reports.variants import make_titles

LOW = 0.6  # height to width: panels of lower planes lie one below the other, or names would not fit
NARROWEST = 2.4  # inches of a panel with a colour bar of its own


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a picture for each plane: losses and errors around three models."""
    drawn = []
    for run in sort_runs(runs, everything):
        found = _find_planes(run, everything)
        for number, plane in enumerate(found):
            suffix = f"_{run.name}" + (f"_{number + 1}" if len(found) > 1 else "")
            drawn.append(_draw_plane(run, everything, plane, suffix))
    return drawn


def _find_planes(run: Run, everything: Collection) -> list[Plane]:
    """Those that begin with a model of this run; from its own answer where runs were not analysed together."""
    together = [plane for answer in everything.together.get("plane", []) for plane in read_planes(answer)]
    own = run.answer("plane")
    return [plane for plane in together if plane.models[0].run == run.name] or (read_planes(own) if own else [])


def _draw_plane(run: Run, everything: Collection, plane: Plane, suffix: str) -> Drawing:
    panels = [split for split in PANELS if split in plane.data["split"].values]
    ratio = float(np.ptp(plane.y) / np.ptp(plane.x))
    shape, width = ((len(panels), 1), 6.4) if ratio < LOW else ((1, len(panels)), 4.7 * len(panels))
    height = shape[0] * float(np.clip(ratio * (width / shape[1] - 1.5) + 0.8, 2.0, 6.0))
    figure, axes = make_canvas(*shape, width=width, height=height, narrowest=NARROWEST)
    owners = _find_owners(run, everything, plane)
    named = make_titles([one for one in everything.runs if one.name in owners], everything)
    names = _name_models(named, plane)
    title = " and ".join(dict.fromkeys(one.method for one in everything.runs if one.name in owners))
    title = named.get(run.name, run.name) if len(owners) == 1 else title
    rows: list[Row] = []
    for place, split in zip(axes, panels, strict=True):
        drawn = draw_plane(place, plane, split, names)
        label_axes(place, "weight distance", "weight distance", f"{title}: {PANELS[split][1]}")
        mark(place, owners)
        rows += [{"run": run.name, "algorithm": run.algorithm, **row} for row in drawn]
    return Drawing(figure, rows, join_caption(_describe(run, plane)), suffix)


def _name_models(named: Mapping[str, str], plane: Plane) -> list[str]:
    """As short as can be: what a plane's models have in common is in the title; runs by what they differ in."""
    names = []
    for model in plane.models:
        if model.client is not None:
            names.append(f"client {model.client}")
        elif plane.through == "runs":
            names.append(named.get(model.run, model.run))
        else:
            names.append("global model" if plane.through == "clients" else f"round {model.round}")
    return names


def _find_owners(run: Run, everything: Collection, plane: Plane) -> list[str]:
    """The runs that a plane shows."""
    known = {one.name for one in everything.runs}
    return [name for name in dict.fromkeys(model.run for model in plane.models) if name in known] or [run.name]


def _describe(run: Run, plane: Plane) -> list[str]:
    """For the caption: what was measured, on how much, how."""
    data = plane.data
    counts = ", ".join(
        f"{int(count)} {name_split(str(split))}"
        for split, count in zip(data["split"].values, data["examples"], strict=True)
    )
    off = float(data["distance"].sel(model="global")) if "global" in data["model"].values else None
    return [
        run.data_name,
        run.heterogeneity,
        f"{run.method}, round {plane.models[0].round}, seed {run.seed}",
        f"n = {counts}",
        f"BatchNorm {data['batchnorm'].item()}",
        "levels in equal steps of the logarithm above the minimum",
        f"star: the global model, projected, {off:.2g} away from the plane" if off is not None else "",
    ]


FIGURE = Figure(
    name="plane",
    topic="connected",
    title="The plane through three models",
    reading="Models in one dark valley can be averaged; a bright ridge on a dashed line is a barrier between two.",
    needs=("plane",),
    draw=draw,
)
