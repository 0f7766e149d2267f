"""Answers made up for tests: how they are put together, and where in a run directory they lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from analysis import store
from analysis.store import Answer


def make_answer(study: str, data: xr.Dataset, **settings: object) -> Answer:
    """The answer to the default question of a study."""
    return Answer(study, store.DEFAULT, settings, {"batchnorm": ["frozen"], "seed": [0]}, data)


def write_answer(run: Path, answer: Answer) -> Path:
    """Write an answer to where `landscape analyze` puts it."""
    path = run / "analysis" / answer.study / f"{answer.question}.h5"
    store.write(path, answer)
    return path


def spread(
    rounds: Sequence[int], clients: Sequence[int], participants: Sequence[tuple[int, int]], values: ArrayLike
) -> NDArray[np.float64]:
    """Values of single participants, (participant, ...), as an array (round, client, ...) with NaN elsewhere.

    participants: round and client of each.

    >>> spread([5], [0, 3], [(5, 3)], [0.5])
    array([[nan, 0.5]])
    """
    rows = np.asarray(values, dtype=np.float64)
    cells = np.full((len(rounds), len(clients), *rows.shape[1:]), np.nan)
    for (round, client), row in zip(participants, rows, strict=True):
        cells[list(rounds).index(round), list(clients).index(client)] = row
    return cells
