"""Which client holds which classes: all clients, with the mean number of classes per client above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from landscape.plotting.relief import make_norm
from landscape.plotting.style import label_axes, mark
from reports.panels.kind import Array, Given, Kind, Shown
from reports.panels.loss.surface import choose_seed
from reports.plotting.heat import draw_heat
from reports.rows import Row


@dataclass(frozen=True)
class Options:
    """What is drawn.

    clients: how many, the first ones; None: all.
    scale: panels with the same word share colours.
    """

    clients: int | None = None
    scale: str = ""


def _find(shown: Sequence[Shown], options: Options) -> NDArray[np.int64] | None:
    """Examples by client and class of the first series; None where they are not on disk."""
    run = choose_seed(shown[:1]).get(shown[0].name) if shown else None
    counts = None if run is None else run.class_counts
    return None if counts is None else counts[: options.clients]


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw a cell for each client and class, coloured by its examples; white where there are none."""
    counts = _find(shown, options)
    if counts is None or given.scale is None:
        return []
    norm = make_norm(given.scale)
    cells = np.where(counts > 0, given.scale.heights(counts.astype(np.float64)), np.nan).T
    clients, classes = counts.shape
    limits = (float(norm.vmin or 0.0), float(norm.vmax or 1.0))
    draw_heat(axes, cells, range(clients), range(classes), limits)
    axes.patch.set(hatch="", facecolor="white")  # empty cells are known: there is nothing
    held = float(np.mean(np.count_nonzero(counts, axis=1)))
    label_axes(axes, "client", "class", f"{held:.3g} classes per client")
    mark(axes, shown[0].names)
    return [
        {"series": shown[0].name, "client": client, "class": name, "examples": int(count), "classes_per_client": held}
        for (client, name), count in np.ndenumerate(counts)
        if count
    ]


def list_counts(shown: Sequence[Shown], options: Options, given: Given) -> list[Array]:
    """List the counts that share a scale."""
    counts = _find(shown, options)
    return [] if counts is None else [counts[counts > 0].astype(np.float64)]


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say how many clients there are beside those that are drawn."""
    run = choose_seed(shown[:1]).get(shown[0].name) if shown else None
    if run is None or run.class_counts is None:
        return []
    total = len(run.class_counts)
    fewer = options.clients is not None and options.clients < total
    return [f"the first {options.clients} of {total} clients" if fewer else "", "white: no examples"]


KIND = Kind(
    name="partition",
    shows="examples by client and class",
    draw=draw,
    options=Options,
    most=1,
    heading=True,
    values=list_counts,
    bar=lambda options: "training examples",
    describe=describe,
    size=(3.4, 2.4),
)
