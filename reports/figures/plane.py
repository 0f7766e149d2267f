"""The plane through three models in weight distances: training loss and test error side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from analysis.store import Stored, Table
from reports.figure import Drawn, Figure
from reports.plotting.maps import bar, bounded, filled
from reports.plotting.style import MAGNITUDE, canvas, caption, label, mark
from reports.plotting.surfaces import in_order
from reports.runs import Collection, Run
from reports.variants import titles

PANELS = (("train", "loss", "training loss", 1.0), ("test", "error", "test error (%)", 100.0))
SHAPES = ("o", "s", "D", "*")  # three models, and the global one beside them
LEVELS, NEAREST = 7, 1 / 16  # levels, and how near the lowest comes to the minimum, of the whole height
LOW = 0.6  # height to width: panels of lower planes lie one below the other, or names would not fit
HALO = [withStroke(linewidth=2.5, foreground="white")]  # to be seen on any colour
NAMED = re.compile(r"(?P<run>.*) round (?P<round>\d+)(?: client (?P<client>\d+))?")


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    drawn = []
    for run in in_order(runs, everything):
        found = _planes(run, everything)
        for number, (stored, table) in enumerate(found):
            suffix = f"_{run.name}" + (f"_{number + 1}" if len(found) > 1 else "")
            drawn.append(_one(run, everything, stored, table, suffix))
    return drawn


def _planes(run: Run, everything: Collection) -> list[tuple[Stored, Table]]:
    """Those that begin with a model of this run; from its own file where runs were not analysed together."""
    alone = [stored for stored in (run.results.get("plane"),) if stored is not None]
    together = everything.together.get("plane", [])
    mine = [(one, table) for one in together for table in one.tables.values() if table.attributes["run"] == run.name]
    return mine or [(one, table) for one in alone for table in one.tables.values()]


def _one(run: Run, everything: Collection, stored: Stored, table: Table, suffix: str) -> Drawn:
    splits = [str(split) for split in table["split"]]
    panels = [panel for panel in PANELS if panel[0] in splits]
    ratio = float(np.ptp(table["y"]) / np.ptp(table["x"]))
    shape, width = ((len(panels), 1), 6.4) if ratio < LOW else ((1, len(panels)), 4.7 * len(panels))
    height = shape[0] * float(np.clip(ratio * (width / shape[1] - 1.5) + 0.8, 2.0, 6.0))
    figure, axes = canvas(*shape, width=width, height=height)
    owners = _owners(run, everything, table)
    named = titles([one for one in everything.runs if one.name in owners], everything)
    names = _names(named, table)
    title = " and ".join(dict.fromkeys(one.algorithm for one in everything.runs if one.name in owners))
    title = named.get(run.name, run.name) if len(owners) == 1 else title
    rows: list[dict[str, Any]] = []
    for place, (split, field, name, factor) in zip(axes, panels, strict=True):
        number = splits.index(split)
        values, at_models = factor * table[field][number], factor * table[f"model_{field}"][number]
        levels = _levels(values, at_models)
        beyond = bool((values > levels[-1]).any())
        shown = filled(place, table["x"], table["y"], values, levels, "max" if beyond else "neither", MAGNITUDE)
        if shown is not None:
            lines = bounded(values, levels).T
            place.contour(table["x"], table["y"], lines, levels[1:], colors="white", linewidths=0.5, alpha=0.7)
            bar(figure, [place], shown, (levels, _texts(levels, beyond)), "")  # the title names it
        _models(place, table, names)
        label(place, "weight distance", "weight distance", f"{title}: {name}")
        mark(place, owners)
        rows += _rows(run, table, names, (split, field), values, at_models)
    return Drawn(figure, rows, caption(_about(run, stored, table)), suffix)


def _levels(values: NDArray[np.float64], at_models: NDArray[np.float64]) -> NDArray[np.float64]:
    """Above the minimum in equal steps of the logarithm (Garipov et al. 2018); the three models lie within."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.array([0.0, 1.0])
    near = at_models[:3][np.isfinite(at_models[:3])]
    low, high = float(finite.min()), max([float(np.percentile(finite, 95)), *map(float, near)])
    if high <= low:
        high = max(float(finite.max()), low + 1e-3 * max(abs(low), 1.0))
    return np.asarray(low + (high - low) * np.array([0.0, *np.geomspace(NEAREST, 1, LEVELS)]))


def _texts(levels: NDArray[np.float64], beyond: bool) -> list[str]:
    """As many digits as it takes to tell them apart."""
    every = [[f"{level:.{digits}g}" for level in levels] for digits in range(2, 9)]
    texts = next((some for some in every if len(set(some)) == len(some)), every[-1])
    return [*texts[:-1], f"> {texts[-1]}" if beyond else texts[-1]]


def _models(axes: Axes, table: Table, names: Sequence[str]) -> None:
    """Markers with names beside them, away from the middle; dashed lines between the three."""
    points = np.stack([table["model_x"], table["model_y"]], axis=1)
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


def _names(named: Mapping[str, str], table: Table) -> list[str]:
    """As short as can be: what a plane's models have in common is in the title; runs by what they differ in."""
    names = []
    for text in map(str, table["label"]):
        found = NAMED.fullmatch(text)
        if found is None:
            names.append(text)
        elif found["client"] is not None:
            names.append(f"client {found['client']}")
        elif table.attributes["models"] == "runs":
            names.append(named.get(found["run"], found["run"]))
        else:
            names.append("global model" if table.attributes["models"] == "clients" else f"round {found['round']}")
    return names


def _owners(run: Run, everything: Collection, table: Table) -> list[str]:
    """The runs that a plane shows."""
    found = [match["run"] for text in table["label"] if (match := NAMED.fullmatch(str(text)))]
    known = {one.name for one in everything.runs}
    return [name for name in dict.fromkeys(found) if name in known] or [run.name]


def _rows(
    run: Run,
    table: Table,
    names: Sequence[str],
    what: tuple[str, str],
    values: NDArray[np.float64],
    at_models: NDArray[np.float64],
) -> list[dict[str, Any]]:
    """Models first, then the grid."""
    where = {"run": run.name, "algorithm": run.algorithm, "split": what[0], "measure": what[1]}
    places = zip(names, table["model_x"], table["model_y"], at_models, strict=True)
    return [
        *({**where, "model": name, "x": x, "y": y, "value": value} for name, x, y, value in places),
        *(
            {**where, "model": "", "x": x, "y": y, "value": values[i, j]}
            for i, x in enumerate(table["x"])
            for j, y in enumerate(table["y"])
        ),
    ]


def _about(run: Run, stored: Stored, table: Table) -> list[str]:
    counts = ", ".join(f"{count} {split}" for split, count in zip(table["split"], table["examples"], strict=True))
    off = float(table["distance"][3]) if len(table["distance"]) > 3 else None
    return [
        run.data,
        run.heterogeneity,
        f"{run.algorithm}, round {int(table.attributes['round'])}, seed {run.seed}",
        f"n = {counts}",
        f"norm layers {table.attributes['batchnorm']}",
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
