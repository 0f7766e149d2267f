"""Accuracy under each corruption as bars, one colour per series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from landscape.plotting.style import label_axes, mark
from reports.inputs.runs import Run
from reports.inputs.summary import mean_known
from reports.panels.bars import style_bars
from reports.panels.kind import Given, Kind, Shown
from reports.rows import Row

WIDE = 0.85  # share of a corruption's room that its bars take


@dataclass(frozen=True)
class Options:
    """Which severity is drawn: 1 to 5, or None for the mean over those that were measured."""

    severity: int | None = 5


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw a bar for each corruption and series, the mean over seeds with its standard deviation."""
    there = [one for one in shown if any(_has(run, options) for run in one.counted)]
    names = list(dict.fromkeys(name for one in there for run in one.counted for name in _list_names(run)))
    rows: list[Row] = []
    for number, one in enumerate(there):
        shift = WIDE * ((number + 0.5) / len(there) - 0.5)
        rows += _draw_bars(axes, one, names, shift, WIDE / len(there), options)
    texts = [name.replace("_", " ") for name in names]
    axes.set_xticks(range(len(names)), texts, rotation=60, ha="right", rotation_mode="anchor", fontsize=6)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(False, axis="x")
    label_axes(axes, "", "accuracy (%)")
    return rows


def _has(run: Run, options: Options) -> bool:
    data = run.measured("robustness")
    return data is not None and (options.severity is None or options.severity in data["severity"].values)


def _list_names(run: Run) -> list[str]:
    data = run.measured("robustness")
    return [] if data is None else [str(name) for name in data["corruption"].values]


def _find(run: Run, names: Sequence[str], options: Options) -> NDArray[np.float64]:
    """Per cent under each corruption in the last round; NaN for one that the run has not."""
    data = run.measured("robustness")
    assert data is not None
    last = data["accuracy"].isel(round=-1).reindex(corruption=list(names))
    one = last.mean("severity") if options.severity is None else last.sel(severity=options.severity)
    return np.asarray(100.0 * one.values, dtype=np.float64)


def _draw_bars(axes: Axes, one: Shown, names: Sequence[str], shift: float, width: float, options: Options) -> list[Row]:
    values = np.stack([_find(run, names, options) for run in one.counted if _has(run, options)])
    mean = mean_known(values)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(len(names), np.nan)
    x = np.arange(len(names)) + shift
    bars = axes.bar(x, mean, 0.95 * width, label=one.name)
    style_bars(bars.patches, one)
    mark(bars.patches, one.names)
    if len(values) > 1:
        doubt = axes.errorbar(x, mean, np.nan_to_num(spread), fmt="none", ecolor="0.2", linewidth=0.7)
        mark(doubt.get_children(), one.names)
    about: Row = {"series": one.name, "seeds": len(values)}
    return [
        {**about, "corruption": name, "mean": float(mean[place]), "spread": float(spread[place])}
        for place, name in enumerate(names)
    ]


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say how strong corruptions are, and what bars are."""
    stored = [data for one in shown for run in one.counted if (data := run.measured("robustness")) is not None]
    skipped = {str(data.attrs.get("left_out", "")) for data in stored} - {""}
    return [
        f"severity {options.severity}" if options.severity is not None else "mean over severities",
        "error bars: standard deviation over seeds" if any(len(one.counted) > 1 for one in shown) else "",
        "open bars: unfinished" if any(one.unfinished for one in shown) else "",
        f"does not apply to these images: {', '.join(sorted(skipped))}" if skipped else "",
        *dict.fromkeys(map(tell_origin, stored)),
    ]


def tell_origin(data: xr.Dataset) -> str:
    """Say whether corrupted images come from the published files or were made here."""
    published = {name for name in str(data.attrs.get("published", "")).split(", ") if name}
    made = [str(name) for name in data["corruption"].values if str(name) not in published]
    if not published:
        return "corrupted images were made here, not read from published files"
    return "corrupted images: the published files" + (f", but for {', '.join(made)}, made here" if made else "")


KIND = Kind(
    name="corruptions",
    shows="accuracy under each corruption",
    draw=draw,
    options=Options,
    studies=lambda options: ("robustness",),
    describe=describe,
    size=(5.2, 2.9),
)
