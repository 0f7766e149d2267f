"""What is known of a run over rounds: a metric, what was recorded along the local steps, a variable of a study."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reports.inputs.runs import Run
from reports.plotting.lines import NOTHING, Series


def find_best(run: Run, key: str = "accuracy", factor: float = 1.0) -> Series:
    """A metric over rounds; as accuracy that of the SWA model once there is one, the server's before.

    key: the metric; for "accuracy" the run's score is taken, the mean IoU where pixels are classified.
    """
    score = run.score if key == "accuracy" else key
    rounds, values = run.series(score)
    if key == "accuracy":
        averaged = dict(zip(*run.series(f"swa_{score}"), strict=True))
        values = np.asarray([averaged.get(round, value) for round, value in zip(rounds, values, strict=True)])
    return rounds, factor * values


def list_records(run: Run) -> list[tuple[int, Mapping[str, object]]]:
    """Rounds with what was recorded in them."""
    found = [(record["round"], record.get("recorded")) for record in run.metrics]
    return [(round, some) for round, some in found if isinstance(some, Mapping)]


def find_recorded(run: Run, name: str) -> Series:
    """What was recorded along the local steps, a mean for each round; nothing where it was not recorded.

    name: as recipes call it, for example "proximal_cosine".
    """
    known = [(round, value) for round, some in list_records(run) if (value := _find_mean(some.get(name))) is not None]
    rounds, values = zip(*known, strict=True) if known else NOTHING
    return np.asarray(rounds, dtype=np.float64), np.asarray(values, dtype=np.float64)


def _find_mean(some: object) -> float | None:
    """The mean over steps, or the number itself for what is recorded once a round; None where it was not defined."""
    value = some.get("mean") if isinstance(some, Mapping) else some
    return float(value) if isinstance(value, (int, float)) and np.isfinite(value) else None


def find_variable(run: Run, study: str, name: str) -> Series:
    """A variable of a study that has one number for each round; nothing where it was not measured."""
    data = run.measured(study)
    if data is None or name not in data or data[name].dims != ("round",):
        return NOTHING
    known = data[name].dropna("round")
    return known["round"].values.astype(np.float64), known.values.astype(np.float64)


def find_series(run: Run, study: str, name: str, factor: float = 1.0) -> Series:
    """Whatever has this name: a variable of a study, or a metric, or what was recorded along the local steps.

    study: none for metrics; those that only the study `training` has are found there.
    factor: what values are multiplied by.
    """
    if study:
        rounds, values = find_variable(run, study, name)
        return rounds, factor * values
    for rounds, values in (find_best(run, name), find_recorded(run, name), find_variable(run, "training", name)):
        if len(rounds):
            return rounds, factor * values
    return NOTHING


def smooth(values: ArrayLike, window: int) -> NDArray[np.float64]:
    """Mean of each value and those before it, as many as the window has; fewer at the start.

    >>> smooth([1.0, 2.0, 6.0], 2).tolist()
    [1.0, 1.5, 4.0]
    """
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers):
        return numbers
    sums = np.cumsum(numbers)
    before = np.concatenate([np.zeros(min(window, len(sums))), sums[:-window]])
    return np.asarray((sums - before) / np.minimum(np.arange(1, len(sums) + 1), window))
