"""Numbers read off the curve of accuracy over rounds, in per cent: at a round, the best, when a target is reached.

Where pixels are classified, it is the curve of the mean IoU.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reports.inputs.recipes import find_table, find_whole
from reports.inputs.runs import Run
from reports.quantities.measures import count_bytes_per_round, find_final_accuracy
from training.storage.metrics import PREFIX

PERSONAL = "personal_accuracy"  # metric: mean over all clients of each one's own latest model on its own test examples


def get_curve(run: Run, model: str = "server") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the evaluated rounds and the accuracy there.

    model: "server", "mean" or "swa".
    """
    rounds, values = run.series(f"{PREFIX[model]}{run.score}")
    return rounds, 100.0 * values


def count_planned(run: Run) -> int:
    """Count the rounds of a run as its recipe plans them, or else those on record."""
    return run.progress.planned or find_whole(find_table(run.settings, "rounds"), "count", len(run.metrics))


def find_accuracy_at(run: Run, end: float, model: str = "server") -> float:
    """Find the accuracy after some rounds: the mean over as many evaluated rounds up to there as the recipe says.

    end: the last of them; NaN where the run has not come so far.
    """
    last = find_whole(find_table(run.settings, "evaluation"), "last", 10)
    rounds, values = get_curve(run, model)
    if not len(run.metrics) or run.metrics[-1]["round"] < end:
        return math.nan
    known = values[rounds <= end][-last:]
    return float(known.mean()) if len(known) else math.nan


def find_best(run: Run, metric: str) -> float:
    """Find the highest value of a metric in any round.

    metric: as metrics.jsonl names it: "accuracy", or PERSONAL.
    """
    values = run.series(run.score if metric == "accuracy" else metric)[1]
    return 100.0 * float(values.max()) if len(values) else math.nan


def count_rounds_to(run: Run, target: float, model: str = "server") -> float:
    """Count the rounds until the accuracy is first at least a target; infinity where it never is.

    target: in per cent.
    """
    rounds, values = get_curve(run, model)
    if not len(rounds) or not math.isfinite(target):
        return math.nan
    there = np.flatnonzero(values >= target)
    return float(rounds[there[0]]) if len(there) else math.inf


def count_rounds_to_reference(run: Run, reference: Run | None) -> float:
    """Count the rounds until a run first has the final accuracy of the reference; infinity where it never has.

    The reference itself counts as reaching it at its end, as the papers print it, though single rounds before the end
    may lie above the mean of its last ones.
    """
    if reference is None:
        return math.nan
    if run.name == reference.name:
        return float(count_planned(reference))
    return count_rounds_to(run, find_final_accuracy(reference, "server"))


def find_speed_up(run: Run, reference: Run | None) -> float:
    """Find how many times fewer rounds than the reference has in all a run needs to be as good; infinity: never."""
    rounds = count_rounds_to_reference(run, reference)
    if reference is None or not math.isfinite(rounds):
        return rounds
    return count_planned(reference) / rounds


def find_cost(run: Run, reference: Run | None) -> float:
    """Find the bytes until a run is as good as the reference, relative to all that the reference sends.

    Returns infinity where it never is.
    """
    rounds = count_rounds_to_reference(run, reference)
    if reference is None or not math.isfinite(rounds):
        return rounds
    return rounds * divide(count_bytes_per_round(run), count_planned(reference) * count_bytes_per_round(reference))


def divide(one: float, other: float) -> float:
    """Divide; NaN where the divisor is zero."""
    return one / other if other else math.nan
