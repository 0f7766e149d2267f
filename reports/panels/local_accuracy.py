"""Accuracy of the global model and of the participants' models on the same test set, over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from landscape.plotting.style import label_axes, mark
from reports.panels.kind import Given, Kind, Shown
from reports.plotting.fitting import use_whole_rounds
from reports.plotting.lines import draw_mean_line
from reports.plotting.over_rounds import find_series
from reports.rows import Row


@dataclass(frozen=True)
class Options:
    """No choices: global solid, local dashed with a band of one standard deviation over clients."""


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw both lines of each series in its colour."""
    rows: list[Row] = []
    for one in shown:
        whole = draw_mean_line(axes, one, lambda run: find_series(run, "", "accuracy", 100.0), "global", label=one.name)
        local = _draw_local(axes, one)
        rows += [{**row, "series": one.name} for row in (*whole, *local)] if local else []
    label_axes(axes, "communication round", "test accuracy (%)")
    axes.plot([], [], "k-", label="global model")
    axes.plot([], [], "k--", label="local models")
    use_whole_rounds(axes)
    return rows


def _draw_local(axes: Axes, one: Shown) -> list[Row]:
    """Mean over the participants of all seeds, and their standard deviation as a band."""
    found = [data["local_accuracy_all"] for run in one.shown if (data := _find(run.measured("forgetting"))) is not None]
    if not found:
        return []
    rounds = sorted(set.intersection(*(set(some["round"].values.tolist()) for some in found)))
    values = 100.0 * np.concatenate([some.sel(round=rounds).transpose("client", "round").values for some in found])
    there = np.isfinite(values).any(axis=0)
    places, values = np.asarray(rounds)[there], values[:, there]
    mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    mark(axes.plot(places, mean, "--", color=one.look.color, marker=one.look.marker, markersize=3), one.names)
    band = axes.fill_between(places, mean - spread, mean + spread, color=one.look.color, alpha=0.15, linewidth=0)
    mark(band, one.names)
    counts = np.isfinite(values).sum(axis=0)
    return [
        {"metric": "local", "round": int(t), "mean": float(m), "spread_over_clients": float(s), "clients": int(n)}
        for t, m, s, n in zip(places, mean, spread, counts, strict=True)
    ]


def _find(data: xr.Dataset | None) -> xr.Dataset | None:
    return data if data is not None and "local_accuracy_all" in data else None


KIND = Kind(
    name="local_accuracy",
    shows="accuracy of the global model and of local models over rounds",
    draw=draw,
    options=Options,
    studies=lambda options: ("forgetting",),
    describe=lambda shown, options, given: [
        "local models after local training, on the global test set; their band: one standard deviation over clients"
    ],
)
