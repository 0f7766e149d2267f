"""Loss and error along the straight line between two models, onto given axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from analysis.store import Answer
from landscape.plotting.style import mark
from reports.plotting.origins import Origin, read_origins
from reports.rows import Row


@dataclass(frozen=True, eq=False)
class Line:
    """The line between two models.

    data: what was measured of it, with norm layers treated in one way.
    start, end: the models.
    runs: the runs at its ends.
    """

    data: xr.Dataset
    start: Origin
    end: Origin
    runs: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Key of KINDS."""
        return str(self.data["kind"].item())

    @property
    def barrier(self) -> float:
        """Of the loss of the first split, above the chord."""
        return float(self.data["loss_barrier"].isel(split=0).sel(definition="linear"))

    def name(self, words: Mapping[str, str]) -> str:
        """The ends in a few words; the round where it does not tell them apart.

        words: what to call runs.
        """
        ends = (self.start, self.end)
        after = f", round {self.start.round}" if self.start.round == self.end.round else ""
        if self.kind == "round-round":
            return " to ".join(f"round {one.round}" for one in ends)
        if self.kind == "run-run":
            return " to ".join(words[one.run] for one in ends) + after
        return " to ".join("global" if one.client is None else f"client {one.client}" for one in ends) + after


def read_lines(answer: Answer) -> Iterator[tuple[xr.Dataset, Origin, Origin]]:
    """Every pair once: of several treatments of norm layers the one stored first."""
    data = answer.data
    for number, ends in enumerate(zip(read_origins(data, "start"), read_origins(data, "end"), strict=True)):
        pair = data.isel(pair=number)
        measured = pair["examples"].notnull().any("split").values
        yield pair.isel(batchnorm=int(np.argmax(measured))), *ends


def get_curve(data: xr.Dataset, field: str, split: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return places along a line and the values there: on the grid, and between where the maximum was looked for.

    data: of one line. field: "loss" or "error". split: the data it was measured on.
    """
    chosen = data.sel(split=split)
    x = np.concatenate([chosen["x"].values, chosen["refined_x"].values])
    values = np.concatenate([chosen[field].values, chosen[f"refined_{field}"].values])
    order = np.argsort(x, kind="stable")[: int(np.isfinite(x).sum())]
    return x[order], values[order]


def draw_curves(axes: Axes, line: Line, field: str, color: str, name: str) -> None:
    """Draw a curve for each split, training solid and test dashed; the first has the name in the legend.

    field: "loss" or "error".
    """
    for place, split in enumerate(line.data["split"].values):
        style, said = "-" if split == "train" else "--", "_" if place else name
        curve = axes.plot(*get_curve(line.data, field, split), style, color=color, label=said)
        mark(curve, line.runs)


def list_rows(line: Line) -> Iterator[Row]:
    """List the numbers along a line, split by split."""
    ends = {"kind": line.kind, "start": line.start.label, "end": line.end.label}
    for split in line.data["split"].values.tolist():
        data = line.data.sel(split=split)
        height = float(data["loss_barrier"].sel(definition="linear"))
        for g, loss, error in zip(data["x"].values, data["loss"].values, data["error"].values, strict=True):
            numbers = {"gamma": float(g), "loss": float(loss), "error": float(error), "loss_barrier": height}
            yield {**ends, "split": split, **numbers}
