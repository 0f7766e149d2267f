"""Accuracy and training loss over rounds: one line per method, a band where there are several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from reports.figure import Drawn, Figure
from reports.runs import Collection, Run
from reports.style import Look, canvas, caption, label, legend, looks

PANELS = (("accuracy", "test accuracy (%)", 100.0), ("train_loss", "training loss", 1.0))


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    figure, axes = canvas(1, 2, width=9.0, height=3.6)
    chosen = looks(run.algorithm for run in everything.runs)
    rows: list[dict[str, Any]] = []
    for place, (key, name, factor) in zip(axes, PANELS, strict=True):
        for algorithm in dict.fromkeys(run.algorithm for run in runs):
            same = [run for run in runs if run.algorithm == algorithm]
            rows += _line(place, same, key, factor, chosen[algorithm])
        label(place, "communication round", name)
    legend(axes[0], loc="lower right")
    seeds = max(sum(run.algorithm == algorithm for run in runs) for algorithm in {run.algorithm for run in runs})
    band = f"mean and range over {seeds} seeds" if seeds > 1 else f"seed {runs[0].seed}"
    return [
        Drawn(figure, rows, caption([runs[0].data, runs[0].heterogeneity, band, "SWA models where averaging is on"]))
    ]


def _line(axes: Axes, runs: Sequence[Run], key: str, factor: float, look: Look) -> list[dict[str, Any]]:
    """Mean over seeds at the rounds they share; the range as a band."""
    series = [_best(run, key) for run in runs]
    series = [one for one in series if len(one[0])]
    if not series:
        return []
    rounds = sorted(set.intersection(*(set(one[0]) for one in series)))
    values = factor * np.asarray([[dict(zip(*one, strict=True))[round] for round in rounds] for one in series])
    mean = values.mean(axis=0)
    axes.plot(rounds, mean, look.line, color=look.color, label=runs[0].algorithm)
    if len(values) > 1:
        axes.fill_between(rounds, values.min(axis=0), values.max(axis=0), color=look.color, alpha=0.15, linewidth=0)
    return [
        {"algorithm": runs[0].algorithm, "metric": key, "round": int(round), "mean": mean[i], "seeds": len(values)}
        for i, round in enumerate(rounds)
    ]


def _best(run: Run, key: str) -> tuple[np.ndarray, np.ndarray]:
    """The SWA model's accuracy once there is one, the server's before."""
    rounds, values = run.series(key)
    if key == "accuracy":
        averaged = dict(zip(*run.series("swa_accuracy"), strict=True))
        values = np.asarray([averaged.get(round, value) for round, value in zip(rounds, values, strict=True)])
    return rounds, values


FIGURE = Figure(
    name="accuracy",
    question="good",
    title="Accuracy and loss over rounds",
    reading="Higher accuracy sooner is better; a curve that jumps tells of clients that pull in different directions.",
    needs=(),
    draw=draw,
)
