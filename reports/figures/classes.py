"""Accuracy of the global model on each class over rounds, one heat map per run."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr

from reports.figure import Drawn, Figure
from reports.plotting.heat import colour_bar, heat, panels
from reports.plotting.measured import measured, of_study, setting
from reports.plotting.style import caption, label, mark
from reports.rows import Row
from reports.runs import Collection, Run
from reports.variants import ordered, titles


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    """A heat map of classes and rounds for each run, all in the same colours."""
    named = titles(runs, everything)
    found = [(run, data) for run in ordered(runs, named) if (data := run.measured("forgetting")) is not None]
    if not found:
        return []
    figure, places = panels(len(found))
    rows: list[Row] = []
    for axes, (run, data) in zip(places, found, strict=True):
        cells = 100 * data["accuracy"].transpose("class", "round")
        image = heat(axes, cells, cells["round"].values, cells["class"].values, (0, 100))
        label(axes, "communication round", "class", named[run.name])
        mark(axes, [run.name])
        rows += _rows(run, data)
    colour_bar(figure, image, places, "accuracy on the class (%)")
    stored = of_study([run for run, _ in found], "forgetting")
    said = [f"{stored[0].settings.get('split', 'test')} data", f"{stored[0].settings.get('model', 'server')} model"]
    count = f"{int(found[0][1]['total'].sum())} examples"
    return [Drawn(figure, rows, caption([*setting(runs), *said, count, *measured(stored)[1:]]))]


def _rows(run: Run, data: xr.Dataset) -> list[Row]:
    return [
        {
            "run": run.name,
            "algorithm": run.algorithm,
            "round": int(round),
            "class": int(name),
            "accuracy": float(data["accuracy"].sel({"round": round, "class": name})),
            "examples": int(data["total"].sel({"class": name})),
        }
        for round in data["round"].values
        for name in data["class"].values
    ]


FIGURE = Figure(
    name="classes",
    topic="good",
    title="Accuracy on each class over rounds",
    reading="Rows that switch between dark and bright are classes learned in one round and forgotten in the next.",
    needs=("forgetting",),
    draw=draw,
)
