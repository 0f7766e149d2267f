"""Grids of losses: cut into blocks of rows, so that an interruption loses minutes, and measured block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from analysis.study import variable
from landscape import Objective
from landscape.geometry.surface import sample, vector

AT_ONCE = 1_000_000  # examples evaluated in one block
FIELDS = {
    "loss": "mean loss",
    "error": "fraction of wrong predictions",
    "standard_error": "standard error of the loss; NaN: all data were used",
    "done": "whether it was computed; a loss may still be inf or NaN there",
}


def cut_rows(rows: int, row_cost: float) -> Iterator[tuple[int, int]]:
    """Blocks of rows of a grid, each (first, one past the last).

    row_cost: examples that are evaluated in one row.
    """
    size = max(int(AT_ONCE // max(row_cost, 1)), 1)
    return ((low, min(low + size, rows)) for low in range(0, rows, size))


def measure_rows(
    objective: Objective,
    base: Tensor,
    d1: Tensor,
    d2: Tensor,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    dims: tuple[str, str] = ("x", "y"),
) -> dict[str, xr.Variable]:
    """Loss and error at base + x_i d1 + y_j d2, indexed [i, j]: rows of what landscape.plane gives, to the bit.

    x: coordinates of the rows.
    y: coordinates of the points in a row.
    dims: names of the two axes.
    """
    origin, first, second = (vector(objective, one, "model or direction") for one in (base, d1, d2))

    def write(cell: float, flat: Tensor) -> None:
        i, j = divmod(int(cell), len(y))
        torch.add(origin, first, alpha=float(x[i]), out=flat).add_(second, alpha=float(y[j]))

    found = sample(objective, np.arange(len(x) * len(y), dtype=np.float64), write)
    missing = np.full(len(x) * len(y), np.nan)
    arrays = {name: getattr(found, name) for name in FIELDS}
    return {
        name: variable(dims, (missing if one is None else one).reshape(len(x), len(y)), FIELDS[name])
        for name, one in arrays.items()
    }
