"""Grids of losses: cut into pieces of bearable work, measured some rows at a time, and put together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from analysis.shared.places import FORWARD
from analysis.store import Variable
from analysis.study import Arrays, Piece
from landscape import Objective
from landscape.geometry.surface import sample, vector

AT_ONCE = 1_000_000  # examples evaluated in one piece of work: minutes, so that a kill loses minutes
FIELDS = ("loss", "error", "standard_error", "done")


def blocks(rows: int, row_cost: float) -> list[tuple[int, int]]:
    """Rows of a grid in pieces of bearable work: (first, one past the last)."""
    size = max(int(AT_ONCE // max(row_cost, 1)), 1)
    return [(low, min(low + size, rows)) for low in range(0, rows, size)]


def grid_pieces(name: str, count: int, steps: int, round: int = -1, client: int = -1) -> list[Piece]:
    """The pieces of one grid on `count` examples."""
    return [
        Piece(f"{name}, rows {low} to {high}", (high - low) * steps * count * FORWARD, 6, round, client)
        for low, high in blocks(steps, steps * count)
    ]


def rows_of(key: str) -> tuple[str, slice]:
    """The grid that a piece of work belongs to, and its rows."""
    name, _, span = key.rpartition(", rows ")
    low, high = span.split(" to ")
    return name, slice(int(low), int(high))


def measure_rows(
    objective: Objective, base: Tensor, d1: Tensor, d2: Tensor, x: NDArray[np.float64], y: NDArray[np.float64]
) -> Arrays:
    """Loss and error at base + x_i d1 + y_j d2, [i, j]: some rows of what landscape.plane gives, to the bit."""
    origin, first, second = (vector(objective, one, "model or direction") for one in (base, d1, d2))

    def write(cell: float, flat: Tensor) -> None:
        i, j = divmod(int(cell), len(y))
        torch.add(origin, first, alpha=float(x[i]), out=flat).add_(second, alpha=float(y[j]))

    shape = len(x), len(y)
    found = sample(objective, np.arange(len(x) * len(y), dtype=np.float64), write)
    measured = {name: getattr(found, name) for name in FIELDS}
    missing = np.full(len(x) * len(y), np.nan)
    arrays: Arrays = {name: (missing if one is None else one).reshape(shape) for name, one in measured.items()}
    return {**arrays, "done": arrays["done"].astype(np.int8)}


def grid_variables(
    found: Mapping[str, Arrays], names: Sequence[Sequence[str]], dims: tuple[str, ...]
) -> dict[str, Variable]:
    """Loss, error and doubt of whole grids from their rows; names[i][k]: the grid of row i seen from data k."""
    about = {
        "loss": "mean loss",
        "error": "fraction of wrong predictions",
        "standard_error": "standard error of the loss; NaN: all data were used",
        "done": "1 where computed; a loss may still be inf or NaN there",
    }

    def together(name: str, field: str) -> NDArray[np.float64]:
        return np.concatenate([found[key][field] for key in found if key.rpartition(", rows ")[0] == name])

    return {
        field: Variable(dims, np.stack([[together(name, field) for name in some] for some in names]), long_name)
        for field, long_name in about.items()
    }
