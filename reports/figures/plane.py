"""The plane through three models in weight distances: training loss and test error side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from analysis.store import Answer
from reports.figure import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.maps import clip_to_levels, draw_bar, fill_contours
from reports.plotting.origins import Origin, read_origins
from reports.plotting.style import MAGNITUDE, join_caption, label_axes, make_canvas, mark
from reports.plotting.surfaces import sort_runs
from reports.rows import Row
from reports.variants import make_titles

PANELS = (("train", "loss", "training loss", 1.0), ("test", "error", "test error (%)", 100.0))
SHAPES = ("o", "s", "D", "*")  # three models, and the global one beside them
LEVELS, NEAREST = 7, 1 / 16  # levels, and how near the lowest comes to the minimum, of the whole height
LOW = 0.6  # height to width: panels of lower planes lie one below the other, or names would not fit
HALO = [withStroke(linewidth=2.5, foreground="white")]  # to be seen on any colour


@dataclass(frozen=True, eq=False)
class Plane:
    """One plane.

    data: what was measured of it.
    models: the three that span it, and the global model where it is shown beside participants.
    through: what it goes through: clients, runs or rounds.
    """

    data: xr.Dataset
    models: Sequence[Origin]
    through: str

    @property
    def x(self) -> NDArray[np.float64]:
        """Coordinates from the first model towards the second."""
        return self.data["x"].values

    @property
    def y(self) -> NDArray[np.float64]:
        """Coordinates at right angles to x."""
        return self.data["y"].values

    @property
    def places(self) -> NDArray[np.float64]:
        """Where the models lie, (model, 2)."""
        return np.stack([self.data["model_x"], self.data["model_y"]], axis=1)


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
    together = [plane for answer in everything.together.get("plane", []) for plane in _read_planes(answer)]
    own = run.answer("plane")
    return [plane for plane in together if plane.models[0].run == run.name] or (_read_planes(own) if own else [])


def _read_planes(answer: Answer) -> list[Plane]:
    each = [answer.data.isel(plane=number) for number in range(answer.data.sizes["plane"])]
    return [Plane(data, read_origins(data, "model"), str(answer.data.attrs["models"])) for data in each]


def _draw_plane(run: Run, everything: Collection, plane: Plane, suffix: str) -> Drawing:
    panels = [panel for panel in PANELS if panel[0] in plane.data["split"].values]
    ratio = float(np.ptp(plane.y) / np.ptp(plane.x))
    shape, width = ((len(panels), 1), 6.4) if ratio < LOW else ((1, len(panels)), 4.7 * len(panels))
    height = shape[0] * float(np.clip(ratio * (width / shape[1] - 1.5) + 0.8, 2.0, 6.0))
    figure, axes = make_canvas(*shape, width=width, height=height)
    owners = _find_owners(run, everything, plane)
    named = make_titles([one for one in everything.runs if one.name in owners], everything)
    names = _name_models(named, plane)
    title = " and ".join(dict.fromkeys(one.method for one in everything.runs if one.name in owners))
    title = named.get(run.name, run.name) if len(owners) == 1 else title
    rows: list[Row] = []
    for place, (split, field, name, factor) in zip(axes, panels, strict=True):
        measured = plane.data.sel(split=split)
        values, at_models = factor * measured[field].values, factor * measured[f"model_{field}"].values
        levels = _choose_levels(values, at_models)
        beyond = bool((values > levels[-1]).any())
        shown = fill_contours(place, plane.x, plane.y, values, levels, "max" if beyond else "neither", MAGNITUDE)
        if shown is not None:
            lines = clip_to_levels(values, levels).T
            place.contour(plane.x, plane.y, lines, levels[1:], colors="white", linewidths=0.5, alpha=0.7)
            draw_bar(figure, [place], shown, (levels, _format_levels(levels, beyond)), "")  # the title names it
        _mark_models(place, plane, names)
        label_axes(place, "weight distance", "weight distance", f"{title}: {name}")
        mark(place, owners)
        rows += _list_rows(run, plane, names, (split, field), values, at_models)
    return Drawing(figure, rows, join_caption(_describe(run, plane)), suffix)


def _choose_levels(values: NDArray[np.float64], at_models: NDArray[np.float64]) -> NDArray[np.float64]:
    """Above the minimum in equal steps of the logarithm (Garipov et al. 2018); the three models lie within."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.array([0.0, 1.0])
    near = at_models[:3][np.isfinite(at_models[:3])]
    low, high = float(finite.min()), max([float(np.percentile(finite, 95)), *map(float, near)])
    if high <= low:
        high = max(float(finite.max()), low + 1e-3 * max(abs(low), 1.0))
    return np.asarray(low + (high - low) * np.array([0.0, *np.geomspace(NEAREST, 1, LEVELS)]))


def _format_levels(levels: NDArray[np.float64], beyond: bool) -> list[str]:
    """As many digits as it takes to tell them apart."""
    every = [[f"{level:.{digits}g}" for level in levels] for digits in range(2, 9)]
    texts = next((some for some in every if len(set(some)) == len(some)), every[-1])
    return [*texts[:-1], f"> {texts[-1]}" if beyond else texts[-1]]


def _mark_models(axes: Axes, plane: Plane, names: Sequence[str]) -> None:
    """Markers with names beside them, away from the middle; dashed lines between the three."""
    points = plane.places
    ring = points[[0, 1, 2, 0]]
    axes.plot(ring[:, 0], ring[:, 1], "--", color="black", linewidth=1.1, path_effects=HALO)
    middle = points[:3].mean(axis=0)
    for (x, y), shape, name in zip(points, SHAPES, names, strict=False):
        size = 13 if shape == "*" else 8
        axes.plot(x, y, shape, color="white", markeredgecolor="black", markersize=size, clip_on=False)
        below = y < middle[1]
        axes.annotate(
            name,
            (x, y),
            (0, -9 if below else 9),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=8,
            path_effects=HALO,
        )


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


def _list_rows(
    run: Run,
    plane: Plane,
    names: Sequence[str],
    what: tuple[str, str],
    values: NDArray[np.float64],
    at_models: NDArray[np.float64],
) -> list[Row]:
    """Models first, then the grid."""
    where = {"run": run.name, "algorithm": run.algorithm, "split": what[0], "measure": what[1]}
    models = zip(names, plane.places, at_models, strict=True)
    return [
        *({**where, "model": name, "x": x, "y": y, "value": value} for name, (x, y), value in models),
        *(
            {**where, "model": "", "x": x, "y": y, "value": values[i, j]}
            for i, x in enumerate(plane.x)
            for j, y in enumerate(plane.y)
        ),
    ]


def _describe(run: Run, plane: Plane) -> list[str]:
    """For the caption: what was measured, on how much, how."""
    data = plane.data
    counts = ", ".join(
        f"{int(count)} {split}" for split, count in zip(data["split"].values, data["examples"], strict=True)
    )
    off = float(data["distance"].sel(model="global")) if "global" in data["model"].values else None
    return [
        run.data,
        run.heterogeneity,
        f"{run.method}, round {plane.models[0].round}, seed {run.seed}",
        f"n = {counts}",
        f"norm layers {data['batchnorm'].item()}",
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
