"""Anything over rounds: one line per series, the mean over seeds with their range as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from landscape.plotting.style import label_axes, mark
from reports.inputs.runs import Run, label_score
from reports.panels.kind import Given, Kind, Shown
from reports.plotting.fitting import fit_axis, use_whole_rounds
from reports.plotting.lines import Series, draw_mean_line
from reports.plotting.over_rounds import find_series, smooth
from reports.quantities.measures import find_final_accuracy
from reports.rows import Row, list_numbers

LABELS = {  # of the y axis; other names are written as they are
    "personal_accuracy": "accuracy of clients' own models (%)",
    "train_loss": "training loss",
    "norm": "$||w||_2$",
    "delta_epsilon": r"$\delta_\epsilon$",
    "proximal_cosine": r"$\cos(\nabla L(w + \epsilon_p), \nabla L_p(w))$",
    "mean_proximal_loss": "proximal loss of local models",
    "mean_distance": "$||w_g - w_k||$",
    "mean_pair_distance": "$||w_k - w_j||$",
    "tracking_error": "$||d - g||^2$",
    "rise_dispersion": "variance of $R_k$ over clients",
    "rise_dispersion_corrected": "variance of $R_k$ over clients",
}
CROSS: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": 8, "markeredgewidth": 2}


@dataclass(frozen=True)
class Options:
    """What is drawn over rounds.

    metric: a metric, something recorded in training, or a variable of a study; of a run that classifies pixels,
    "accuracy" is the mean IoU.
    study: that has it; none for metrics.
    metric_of: other metrics of single series, by their names.
    label: of the y axis. factor: what values are multiplied by; by default accuracies become per cent.
    window: evaluated rounds that a moving mean takes; 1: as measured.
    dashed: series that become a dashed horizontal line at their final value, such as centralised training.
    x: rounds, or the share of each run's own rounds, where budgets differ.
    log: whether the y axis is logarithmic; None: where numbers span decades, but never for accuracies.
    """

    metric: str = "accuracy"
    study: str = ""
    metric_of: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    factor: float | None = None
    window: int = 1
    dashed: tuple[str, ...] = ()
    x: Literal["round", "share"] = "round"
    log: bool | None = None

    @property
    def percent(self) -> bool:
        """Whether it is an accuracy: a fraction that is shown in per cent."""
        return self.metric.endswith("accuracy")


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw a line for each series; where a run diverged, a cross at its end."""
    rows: list[Row] = []
    for one in shown:
        if one.name in options.dashed:
            rows += _draw_level(axes, one, options)
            continue
        name = options.metric_of.get(one.name, options.metric)
        found = draw_mean_line(axes, one, partial(_find, name=name, options=options), name, x=options.x, label=one.name)
        rows += [{**row, "series": one.name} for row in found]
        for run in one.diverged:
            places, values = _find(run, name, options)
            if len(places):
                mark(axes.plot(places[-1], values[-1], color=one.look.color, **CROSS), [run.name])
    label_axes(axes, *_name_axes(options, [run for one in shown for run in one.shown]))
    if options.x == "round":
        use_whole_rounds(axes)
    if options.log or (options.log is None and not options.percent):
        fit_axis(axes, "y", list_numbers(rows, "mean"), always=bool(options.log))
    return rows


def _find(run: Run, name: str, options: Options) -> Series:
    """What is drawn of a run, smoothed; places as rounds or as a share of the run's rounds in per cent."""
    factor = options.factor if options.factor is not None else 100.0 if options.percent else 1.0
    places, values = find_series(run, options.study, name, factor)
    values = smooth(values, options.window)
    if options.x == "share":
        planned = run.progress.planned or (places[-1] if len(places) else 1.0)
        places = 100.0 * places / planned
    return places, values


def _draw_level(axes: Axes, one: Shown, options: Options) -> list[Row]:
    """A dashed line at the final value, mean over seeds; nothing where all diverged."""
    finals = np.asarray([_find_final(run, options) for run in one.counted])
    known = finals[np.isfinite(finals)]
    if not len(known):
        return []
    level = float(known.mean())
    line = axes.axhline(level, linestyle="--", linewidth=1.2, color=one.look.color, label=one.name)
    mark(line, one.names)
    low, high = float(known.min()), float(known.max())
    about: Row = {"series": one.name, "algorithm": one.name, "metric": f"final {options.metric}"}
    return [{**about, "mean": level, "lowest": low, "highest": high, "seeds": len(known)}]


def _find_final(run: Run, options: Options) -> float:
    """As tables have it, for accuracies; else the last value."""
    if options.metric == "accuracy" and not options.study:
        return find_final_accuracy(run)
    values = _find(run, options.metric, options)[1]
    return float(values[-1]) if len(values) else float("nan")


def _name_axes(options: Options, runs: Sequence[Run]) -> tuple[str, str]:
    across = "communication round" if options.x == "round" else "share of the training (%)"
    usual = label_score(runs) if options.metric == "accuracy" else options.metric.replace("_", " ")
    return across, options.label or LABELS.get(options.metric, usual)


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say what lines and bands are."""
    seeds = max((len(one.shown) for one in shown), default=0)
    there = [one for one in options.dashed if any(one == other.name for other in shown)]
    return [
        f"mean and range over {'up to ' if _differ(shown) else ''}{seeds} seeds" if seeds > 1 else "",
        f"moving mean of {options.window} evaluated rounds" if options.window > 1 else "",
        f"dashed: final value of {', '.join(there)}" if there else "",
        "of the SWA model once there is one" if options.metric == "accuracy" and _has_swa(shown) else "",
    ]


def _differ(shown: Sequence[Shown]) -> bool:
    return len({len(one.shown) for one in shown if one.runs}) > 1


def _has_swa(shown: Sequence[Shown]) -> bool:
    return any("swa" in run.settings for one in shown for run in one.runs)


KIND = Kind(
    name="curves",
    shows="a metric or variable over rounds",
    draw=draw,
    options=Options,
    studies=lambda options: (options.study,) if options.study else (),
    describe=describe,
)
