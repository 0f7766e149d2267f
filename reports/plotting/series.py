"""Numbers over rounds: one line per method, bars of doubt for a single run, a band over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from reports.plotting.fitting import finite, fit, whole_rounds
from reports.plotting.style import label, mark
from reports.runs import Run
from reports.variants import Variant

Place = tuple[str, str, str]  # study, table and variable


def panel(
    axes: Axes, variants: Sequence[Variant], place: Place, words: tuple[str, str], factor: float = 1.0
) -> list[dict[str, Any]]:
    """A stored variable over rounds, where runs have it. words: title and label of the y axis."""
    rows: list[dict[str, Any]] = []
    for variant in variants:
        runs = [run for run in variant.shown if has(run, *place)]
        if runs:
            rows += _line(axes, variant, runs, place, factor)
    label(axes, "communication round", words[1], words[0])
    whole_rounds(axes)
    fit(axes, "y", [row["mean"] for row in rows])
    return rows


def has(run: Run, study: str, group: str, name: str) -> bool:
    """Whether the variable is there with at least one number in it."""
    table = run.table(study, group)
    return table is not None and name in table.variables and len(finite(table[name])) > 0


def _line(axes: Axes, variant: Variant, runs: Sequence[Run], place: Place, factor: float) -> list[dict[str, Any]]:
    """Mean over seeds at the rounds they share; the range as a band, or a single run's standard error as bars."""
    look, names, error_name = variant.look, [run.name for run in runs], f"{place[-1]}_error"
    rounds = sorted(set.intersection(*(set(_column(run, place, "round")) for run in runs)))
    values = factor * np.stack([_at(run, place, place[-1], rounds) for run in runs])
    mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    form: dict[str, Any] = {"fmt": f"{look.marker}{look.line}", "color": look.color, "label": variant.label}
    error = None
    if len(runs) > 1:
        mark(axes.fill_between(rounds, low, high, color=look.color, alpha=0.15, linewidth=0), names)
    elif has(runs[0], *place[:2], error_name):
        error = factor * _at(runs[0], place, error_name, rounds)
        low, high = mean - error, mean + error
    mark(axes.errorbar(rounds, mean, error, capsize=2, **form), names)
    return [
        {
            "method": variant.label,
            "runs": " ".join(names),
            "measure": place[-1],
            "round": int(round),
            "mean": mean[i],
            "low": low[i],
            "high": high[i],
        }
        for i, round in enumerate(rounds)
    ]


def _column(run: Run, place: Place, name: str) -> NDArray[Any]:
    table = run.table(*place[:2])
    assert table is not None
    return table[name]


def _at(run: Run, place: Place, name: str, rounds: Sequence[Any]) -> NDArray[np.float64]:
    known = dict(zip(_column(run, place, "round"), _column(run, place, name), strict=True))
    return np.asarray([known[round] for round in rounds], dtype=np.float64)
