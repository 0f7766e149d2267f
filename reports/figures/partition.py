"""Who holds what: a bubble for every client and class, its area the number of training examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray

from landscape.plotting.style import OKABE_ITO, join_caption, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.heat import list_class_names
from reports.rows import Row

SHOWN = 100  # clients, at most: more bubbles cannot be told apart; of more, some evenly spaced ones
BIGGEST = 0.9  # diameter of the largest bubble, in cells


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a picture for each partition: the examples of clients by class."""
    groups: dict[bytes, list[Run]] = {}  # methods that are compared share one partition; another seed has another
    for run in runs:
        if run.class_counts is not None:
            groups.setdefault(run.class_counts.tobytes(), []).append(run)
    drawn = []
    for number, members in enumerate(groups.values()):
        drawn.append(_draw_one(members, f"_{number}" if number else ""))
    return drawn


def _draw_one(runs: Sequence[Run], suffix: str) -> Drawing:
    every = runs[0].class_counts
    assert every is not None
    chosen = np.arange(0, len(every), -(-len(every) // SHOWN))
    counts = every[chosen]
    clients, classes = counts.shape
    cell = min(0.36, 12.0 / clients, 9.0 / classes)  # inches
    figure, (axes,) = make_canvas(width=2.0 + cell * (clients + 0.2), height=max(0.8 + cell * (classes + 0.2), 2.4))
    x, y = (one.ravel() for one in np.meshgrid(np.arange(clients), np.arange(classes), indexing="ij"))
    present = counts.ravel() > 0
    diameter = BIGGEST * 72 * cell * np.sqrt(counts.ravel()[present] / counts.max())
    dots = axes.scatter(x[present], y[present], s=diameter**2, color=OKABE_ITO[0], linewidths=0, zorder=3)
    mark(dots, [run.name for run in runs])
    axes.set_xlim(-0.6, clients - 0.4)
    axes.set_ylim(-0.6, classes - 0.4)
    places = range(0, clients, -(-clients // 15))
    axes.set_xticks(places, [str(chosen[place]) for place in places])
    shown = range(0, classes, -(-classes // 20))
    kind = runs[0].dealt_by
    names = list_class_names(runs[0].data, shown, runs[0].class_names) if kind == "class" else list(map(str, shown))
    axes.set_yticks(shown, names)
    label_axes(axes, "client", kind)
    _draw_sizes(figure, counts, cell)
    plural = "classes" if kind == "class" else "users"
    seeds = sorted({run.seed for run in runs})
    remarks = [
        f"{int(every.sum())} training examples of {len(every)} clients",
        f"{clients} of them are shown, evenly spaced" if len(every) > SHOWN else "",
        f"{every.sum(axis=1).min()} to {every.sum(axis=1).max()} examples a client",
        f"{np.mean(np.count_nonzero(every, axis=1)):.3g} {plural} a client on average",
        f"seed {', '.join(map(str, seeds))}",
    ]
    return Drawing(
        figure,
        _list_rows(counts, chosen, kind),
        join_caption([runs[0].data_name, runs[0].heterogeneity, *remarks]),
        suffix,
    )


def _draw_sizes(figure: Canvas, counts: NDArray[np.int64], cell: float) -> None:
    """Draw three bubbles beside the picture that tell what areas mean."""
    top = int(counts.max())
    values = [value for value in dict.fromkeys((top, -(-top // 4), -(-top // 16))) if value > 0]
    axes = figure.axes[0]
    handles = [
        axes.scatter([], [], s=(BIGGEST * 72 * cell) ** 2 * value / top, color=OKABE_ITO[0], linewidths=0)
        for value in values
    ]
    figure.legend(
        handles,
        [str(value) for value in values],
        title="examples",
        loc="outside right upper",
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        labelspacing=max(36 * cell / 8, 0.5),
        borderpad=1.0,
        handletextpad=1.2,
    )


def _list_rows(counts: NDArray[np.int64], clients: NDArray[np.int64], kind: str) -> list[Row]:
    return [
        {"client": int(clients[place]), kind: name, "examples": int(count)}
        for (place, name), count in np.ndenumerate(counts)
        if count
    ]


FIGURE = Figure(
    name="partition",
    topic="agree",
    title="Which client holds which classes",
    reading="A column with one large bubble is a client that knows a single class; equal bubbles are even data.",
    needs=(),
    draw=draw,
)
