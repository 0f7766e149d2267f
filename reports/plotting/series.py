"""Numbers over rounds: one line per method, error bars for a single run, a band over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from landscape.plotting.style import label_axes, mark
from reports.inputs.runs import Run
from reports.plotting.fitting import fit_axis, select_finite, use_whole_rounds
from reports.rows import Row
from reports.variants import Variant

FEW = 2  # methods in a panel that are named in its title where the others lack its quantity
Place = tuple[str, str]  # study and variable


def draw_panel(
    axes: Axes,
    variants: Sequence[Variant],
    place: Place,
    words: tuple[str, str],
    factor: float = 1.0,
    measure: str = "",
    *,
    linear: bool = False,
) -> list[Row]:
    """Draw a variable over rounds, where runs have it, and say in the title if hardly any do; returns what is drawn.

    place: the study and the variable, whose standard error is called <variable>_error.
    words: title and label of the y axis.
    factor: what values are multiplied by.
    measure: what rows call it; the name of the variable by default.
    linear: whether the y axis is linear whatever the numbers, as for cosines and shares.
    """
    having = {variant: [run for run in variant.shown if has_numbers(run, *place)] for variant in variants}
    having = {variant: runs for variant, runs in having.items() if runs}
    rounds = {int(t) for runs in having.values() for run in runs for t in _list_rounds(run, place)}
    rows: list[Row] = []
    for number, (variant, runs) in enumerate(having.items()):
        at = number if len(rounds) == 1 else None
        rows += [{**row, "measure": measure or place[-1]} for row in _draw_line(axes, variant, runs, place, factor, at)]
    few = 0 < len(having) <= FEW and len(having) < len(variants)
    names = " and ".join(variant.label for variant in having)
    label_axes(axes, "communication round", words[1], f"{words[0]}\n({names} only)" if few else words[0])
    if len(rounds) == 1:
        axes.set_xlabel(f"methods side by side, round {rounds.pop()}")
        axes.set_xticks([])
        axes.set_xlim(-0.7, len(having) - 0.3)
    else:
        use_whole_rounds(axes)
    if not linear:
        fit_axis(axes, "y", [row["mean"] for row in rows])
    return rows


def _list_rounds(run: Run, place: Place) -> list[int]:
    """List the rounds in which a study measured a variable."""
    data = run.measured(place[0])
    return data["round"].values.tolist() if data is not None else []


def has_numbers(run: Run, study: str, name: str) -> bool:
    """Whether a study measured a variable with at least one number in it."""
    data = run.measured(study)
    return data is not None and name in data and len(select_finite(data[name].values)) > 0


def _draw_line(
    axes: Axes, variant: Variant, runs: Sequence[Run], place: Place, factor: float, at: int | None
) -> list[Row]:
    """Draw the mean over seeds at the rounds they share; the range as a band, or one run's standard error as bars.

    at: where the point stands along the axis if there is one round alone, whose range is a bar.
    """
    study, name = place
    look, names, error_name = variant.look, [run.name for run in runs], f"{name}_error"
    found = [data for run in runs if (data := run.measured(study)) is not None]
    rounds = sorted(set.intersection(*(set(data["round"].values.tolist()) for data in found)))
    values = factor * np.stack([data[name].sel(round=rounds).values for data in found]).astype(np.float64)
    mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    form: dict[str, Any] = {"fmt": f"{look.marker}{look.line}", "color": look.color, "label": variant.label}
    error: NDArray[np.float64] | None = None
    if len(runs) > 1 and at is not None:
        error = np.stack([mean - low, high - mean])
    elif len(runs) > 1:
        mark(axes.fill_between(rounds, low, high, color=look.color, alpha=0.15, linewidth=0), names)
    elif has_numbers(runs[0], study, error_name):
        error = factor * found[0][error_name].sel(round=rounds).values
        low, high = mean - error, mean + error
    mark(axes.errorbar(rounds if at is None else [at], mean, error, capsize=2, **form), names)
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
