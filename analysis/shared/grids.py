"""Grids of losses: cut into blocks of rows, so that an interruption loses minutes, and measured block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import xarray as xr
from torch import Tensor

from analysis.study import Floats, Piece, variable
from landscape import Objective
from landscape.geometry.surface import sample_rows
from landscape.results import Line

FORWARD = 1 / 3  # of the cost of a gradient
AT_ONCE = 1_000_000  # examples evaluated in one block
FIELDS = {
    "loss": "mean loss",
    "error": "fraction of wrong predictions",
    "standard_error": "standard error of the loss; NaN: all data were used",
    "done": "whether it was computed; a loss may still be inf or NaN there",
}


@dataclass(frozen=True)
class GridPiece(Piece):
    """Some rows of a grid; without a split, what is measured once for the whole grid.

    split: the data.
    first, stop: the rows, `stop` not among them.
    """

    split: str | None = None
    first: int | None = None
    stop: int | None = None

    def cut(self, split: str, steps: int, cost: int, after: tuple[Piece, ...] = ()) -> Iterator[Self]:
        """The pieces of the grid of a split, as many rows in each as make AT_ONCE examples.

        steps: how many rows there are, and points in each.
        cost: examples that are evaluated at a point.
        after: pieces that they come after.
        """
        size = max(AT_ONCE // max(steps * cost, 1), 1)
        for first in range(0, steps, size):
            stop = min(first + size, steps)
            passes = (stop - first) * steps * cost * FORWARD
            yield replace(self, split=split, first=first, stop=stop, passes=passes, vectors=6, after=after)


def measure_rows(
    objective: Objective, base: Tensor, d1: Tensor, d2: Tensor, x: Floats, y: Floats, dims: tuple[str, str] = ("x", "y")
) -> dict[str, xr.Variable]:
    """Loss and error at base + x_i d1 + y_j d2, indexed [i, j]: rows of what landscape.plane gives, to the bit.

    x: coordinates of the rows.
    y: coordinates of the points in a row.
    dims: names of the two axes.
    """
    return describe_points(sample_rows(objective, base, d1, d2, x, y), dims, (len(x), len(y)))


def describe_points(found: Line, dims: str | Sequence[str], shape: tuple[int, ...]) -> dict[str, xr.Variable]:
    """Variables of what was found at some points: FIELDS, NaN where it is not known.

    dims, shape: names and lengths of the axes.
    """
    arrays = {name: getattr(found, name) for name in FIELDS}
    missing = np.full(len(found.x), np.nan)
    return {
        name: variable(dims, (missing if one is None else one).reshape(shape), FIELDS[name])
        for name, one in arrays.items()
    }
