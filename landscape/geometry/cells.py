"""The cells of a grid while they are being filled, and what an earlier, partly filled grid must have in common."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from landscape.results import Array, Evaluation, Line, Plane

MEASURED = ("loss", "error", "standard_error", "error_standard_error")


class Filled(TypedDict):
    """The fields that `Line` and `Plane` have in common."""

    loss: Array
    error: Array | None
    standard_error: Array | None
    error_standard_error: Array | None
    done: NDArray[np.bool_]


class Cells:
    """The arrays of a grid while they are being filled.

    shape: of the grid.
    resume: an earlier, partly computed result that is filled further.
    """

    def __init__(self, shape: tuple[int, ...], resume: Line | Plane | None = None):
        self.done: NDArray[np.bool_] = np.zeros(shape, dtype=np.bool_)
        self.values = {name: np.full(shape, np.nan) for name in MEASURED}
        self.measured: set[str] | None = None  # known from the first result: only some objectives have errors
        if resume is not None and resume.done.any():
            self.done = resume.done.copy()
            earlier = {name: getattr(resume, name) for name in MEASURED}
            self.values.update({name: array.copy() for name, array in earlier.items() if array is not None})
            self.measured = {name for name, array in earlier.items() if array is not None}

    def store(self, index: int | tuple[int, int], evaluation: Evaluation) -> None:
        """Enter the result of one point."""
        found = {name: value for name in MEASURED if (value := getattr(evaluation, name)) is not None}
        if self.measured is None:
            self.measured = set(found)
        if self.measured != set(found):
            raise ValueError(
                f"resume holds {', '.join(sorted(self.measured))} but this objective gives {', '.join(sorted(found))}: "
                "it was computed with another objective"
            )
        for name, value in found.items():
            self.values[name][index] = value
        self.done[index] = True

    def copy(self) -> Filled:
        """The fields of a result, unchanged by later filling; None for what the objective does not measure."""

        def copy(name: str) -> Array | None:
            return self.values[name].copy() if name in (self.measured or {"loss"}) else None

        return Filled(
            loss=self.values["loss"].copy(),
            error=copy("error"),
            standard_error=copy("standard_error"),
            error_standard_error=copy("error_standard_error"),
            done=self.done.copy(),
        )


def check_same_grid(name: str, earlier: Array, now: Array, scale: float) -> None:
    """Refuse to resume a grid whose coordinates differ from those asked for.

    name: of the coordinates, for the message.
    earlier: as the grid has them.
    now: as they are asked for.
    scale: their size, to judge what is rounding.
    """
    if earlier.shape != now.shape or not np.allclose(earlier, now, rtol=0, atol=1e-9 * scale):
        raise ValueError(
            f"resume must be of the same grid and directions, but its {name} differs: "
            f"{_describe_ends(earlier)} before, {_describe_ends(now)} now. Leave resume out to compute afresh"
        )


def _describe_ends(values: Array) -> str:
    return f"{values[0]:.6g}" if len(values) == 1 else f"{values[0]:.6g} .. {values[-1]:.6g} ({len(values)} points)"
