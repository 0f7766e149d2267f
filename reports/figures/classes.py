"""Accuracy of the global model on each class over rounds, one heat map per run."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run, name_accuracy
from reports.plotting.heat import draw_colour_bar, draw_heat, list_class_names, make_panels
from reports.plotting.measured import describe_measurement, describe_setting, find_answers, get_data
from reports.rows import Row
from reports.variants import choose_shown, describe_shown, make_titles


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a heat map of classes and rounds for each run, all in the same colours."""
    measured = [run for run in runs if run.measured("forgetting") is not None]
    shown = choose_shown(measured, everything)
    named = make_titles(shown, everything)
    pairs = [(run, get_data(run, "forgetting")) for run in shown]
    if not pairs:
        return []
    figure, panels = make_panels(len(pairs))
    rows: list[Row] = []
    for axes, (run, data) in zip(panels, pairs, strict=True):
        cells = 100 * data["accuracy"].transpose("class", "round")
        image = draw_heat(
            axes,
            cells,
            cells["round"].values,
            list_class_names(run.data, cells["class"].values, run.class_names),
            (0, 100),
        )
        label_axes(axes, "communication round", "class", named[run.name])
        mark(axes, [run.name])
        rows += _list_rows(run, data)
    draw_colour_bar(figure, image, panels, f"{name_accuracy(shown)} on the class (%)")
    stored = find_answers(shown, "forgetting")
    remarks = [f"{stored[0].settings.get('split', 'test')} data", f"{stored[0].settings.get('model', 'server')} model"]
    remarks += [f"{int(pairs[0][1]['total'].sum())} examples", describe_shown(shown, measured)]
    return [
        Drawing(figure, rows, join_caption([*describe_setting(shown), *remarks, *describe_measurement(stored)[1:]]))
    ]


def _list_rows(run: Run, data: xr.Dataset) -> list[Row]:
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
