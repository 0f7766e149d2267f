"""Numbers over rounds: one line per method, error bars for a single run, a band over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from landscape.plotting.style import label_axes, mark
from reports.inputs.runs import Run
from reports.plotting.fitting import fit_axis, select_finite, use_whole_rounds
from reports.rows import Row
from reports.variants import Variant

Place = tuple[str, str]  # study and variable


def draw_panel(
    axes: Axes,
    variants: Sequence[Variant],
    place: Place,
    words: tuple[str, str],
    factor: float = 1.0,
    measure: str = "",
) -> list[Row]:
    """Draw a variable over rounds, where runs have it; returns what is drawn.

    place: the study and the variable, whose standard error is called <variable>_error.
    words: title and label of the y axis.
    factor: what values are multiplied by.
    measure: what rows call it; the name of the variable by default.
    """
    rows: list[Row] = []
    for variant in variants:
        runs = [run for run in variant.shown if has_numbers(run, *place)]
        if runs:
            rows += [{**row, "measure": measure or place[-1]} for row in _draw_line(axes, variant, runs, place, factor)]
    label_axes(axes, "communication round", words[1], words[0])
    use_whole_rounds(axes)
    fit_axis(axes, "y", [row["mean"] for row in rows])
    return rows


def has_numbers(run: Run, study: str, name: str) -> bool:
    """Whether a study measured a variable with at least one number in it."""
    data = run.measured(study)
    return data is not None and name in data and len(select_finite(data[name].values)) > 0


def _draw_line(axes: Axes, variant: Variant, runs: Sequence[Run], place: Place, factor: float) -> list[Row]:
    """Draw the mean over seeds at the rounds they share; the range as a band, or one run's standard error as bars."""
    study, name = place
    look, names, error_name = variant.look, [run.name for run in runs], f"{name}_error"
    found = [data for run in runs if (data := run.measured(study)) is not None]
    rounds = sorted(set.intersection(*(set(data["round"].values.tolist()) for data in found)))
    values = factor * np.stack([data[name].sel(round=rounds).values for data in found]).astype(np.float64)
    mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    form: dict[str, Any] = {"fmt": f"{look.marker}{look.line}", "color": look.color, "label": variant.label}
    error = None
    if len(runs) > 1:
        mark(axes.fill_between(rounds, low, high, color=look.color, alpha=0.15, linewidth=0), names)
    elif has_numbers(runs[0], study, error_name):
        error = factor * found[0][error_name].sel(round=rounds).values
        low, high = mean - error, mean + error
    mark(axes.errorbar(rounds, mean, error, capsize=2, **form), names)
    return [
        {
            "method": variant.label,
            "runs": " ".join(names),
            "measure": name,
            "round": int(round),
            "mean": mean[i],
            "low": low[i],
            "high": high[i],
        }
        for i, round in enumerate(rounds)
    ]
