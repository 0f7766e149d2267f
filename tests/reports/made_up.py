"""Runs made up in memory, for numbers that can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.store import Answer
from reports.inputs.progress import Progress
from reports.inputs.runs import Run, group_by_study


def make_up(
    algorithm: str,
    accuracies: Sequence[float | None],
    *,
    seed: int = 0,
    last: int = 1,
    state: str = "finished",
    planned: int | None = None,
    sent: int = 50,
    classes: int = 10,
    answers: Sequence[Answer] = (),
    settings: dict[str, Any] | None = None,
    **more: Sequence[float | None],
) -> Run:
    """A run with the accuracy of each round, a fraction, None where it was not evaluated.

    last: evaluated rounds in the final mean. planned: rounds of the recipe; by default those that are there.
    sent: bytes down, and as many up, a round. more: further metrics, a value for each round.
    """
    records: list[dict[str, Any]] = []
    for place, accuracy in enumerate(accuracies):
        record = {"round": place + 1, "accuracy": accuracy, "bytes_down": sent, "bytes_up": sent}
        records.append(record | {key: values[place] for key, values in more.items()})
    count = len(accuracies) if planned is None else planned
    recipe = {
        "seed": seed,
        "data": {"name": "digits"},
        "algorithm": {"name": algorithm},
        "rounds": {"count": count},
        "evaluation": {"last": last},
        **(settings or {}),
    }
    return Run(
        Path(f"{algorithm}_{seed}"),
        recipe,
        records,
        answers=group_by_study(answers),
        class_counts=np.ones((2, classes), dtype=np.int64),
        progress=Progress(state, len(records), count),
    )
