"""What all records of results have in common: a table of numbers, and a summary for notebooks. Imports no torch."""

from __future__ import annotations

import dataclasses
import html
from enum import Enum
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 5  # numbers of an array in a summary
HIDDEN = "parameter"  # an axis as long as the model: not for tables


@dataclasses.dataclass(frozen=True)
class Record:
    """A frozen dataclass; `dims` in a field's metadata names the axes of its array."""

    def to_pandas(self) -> pd.DataFrame:
        """Return the numbers as a table: one row for each entry of the arrays, or one row of single numbers.

        Coordinates are the index. Vectors of the model's size are left out.
        """
        import pandas as pd

        arrays = self._arrays()
        if not arrays:
            return pd.DataFrame([self._numbers()])
        dims = max((self._dims(name) for name in arrays), key=len)
        shape = next(values.shape for name, values in arrays.items() if self._dims(name) == dims)
        axes = [
            arrays[dim].tolist() if dim in arrays and self._dims(dim) == (dim,) else list(range(1, size + 1))
            for dim, size in zip(dims, shape, strict=True)
        ]
        columns = {
            name: values.ravel() for name, values in arrays.items() if self._dims(name) == dims and name not in dims
        }
        index = pd.MultiIndex.from_tuples(list(product(*axes)), names=dims)
        return pd.DataFrame(columns, index=index if len(dims) > 1 else pd.Index(axes[0], name=dims[0]))

    def _repr_html_(self) -> str:
        """A summary for notebooks: every field in a row, long arrays by their first numbers."""
        rows = (
            f"<tr><th style='text-align:left'>{field.name}</th><td style='text-align:left'>"
            f"{html.escape(summarise(getattr(self, field.name)))}</td></tr>"
            for field in dataclasses.fields(self)
        )
        return f"<table><caption>{type(self).__name__}</caption>{''.join(rows)}</table>"

    def _dims(self, name: str) -> tuple[str, ...]:
        known = {field.name: field.metadata.get("dims", ()) for field in dataclasses.fields(self)}
        return tuple(known[name])

    def _arrays(self) -> dict[str, np.ndarray]:
        fields = [one.name for one in dataclasses.fields(self) if HIDDEN not in one.metadata.get("dims", (HIDDEN,))]
        return {name: np.asarray(getattr(self, name)) for name in fields if getattr(self, name) is not None}

    def _numbers(self) -> dict[str, object]:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in given.items() if isinstance(value, (bool, int, float, str))}


def summarise(value: object) -> str:
    """Write a field of a record in one line.

    >>> summarise(np.array([1.0, 0.25]))
    '1, 0.25'
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Enum):
        return f"{value.name}: {value.value}"
    if isinstance(value, Record):
        return type(value).__name__
    if isinstance(value, dict):
        return ", ".join(map(str, value))
    shape = tuple(getattr(value, "shape", ()))
    if not shape:
        return str(value)
    detach = getattr(value, "detach", None)
    numbers = np.asarray(value if detach is None else detach().cpu())  # a tensor may lie on a graphics card
    if len(shape) > 1 or len(numbers) > 2 * SHOWN:
        known = numbers.astype(np.float64)
        known = known[np.isfinite(known)]
        span = f", from {known.min():.4g} to {known.max():.4g}" if len(known) else ""
        return f"{' x '.join(map(str, shape))} numbers{span}"
    return ", ".join(f"{one:.6g}" if isinstance(one, float) else str(one) for one in numbers.tolist())
