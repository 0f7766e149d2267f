"""How the network sees examples: t-SNE of what enters its classifier, coloured by class."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.typing import ColorType
from numpy.typing import NDArray

from reports.figure import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.palette import OKABE_ITO
from reports.plotting.heat import make_panels, mark_empty
from reports.plotting.measured import describe_measurement, describe_setting, find_answers
from reports.plotting.style import MAGNITUDE, join_caption, label_axes, mark
from reports.rows import Row
from reports.variants import make_titles, sort_by_title

SIZE = 8  # of a point, in all panels
NAMED = 30  # classes that get their number written; more would cover the points


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw the features of the last round and the first model, a panel for each run."""
    named = make_titles(runs, everything)
    found = [(run, data) for run in sort_by_title(runs, named) if (data := run.measured("features")) is not None]
    if not found:
        return []
    figure, places = make_panels(len(found), width=3.0, height=3.1)
    rows: list[Row] = []
    for axes, (run, data) in zip(places, found, strict=True):
        rows += _draw_panel(axes, run, data.isel(model=0, round=-1))
        label_axes(axes, "t-SNE, first axis", "t-SNE, second axis", named[run.name])
        mark(axes, [run.name])
    (stored,) = find_answers([found[0][0]], "features")
    first = found[0][1].isel(model=0, round=-1)
    said = [
        f"{first.sizes['example']} {stored.settings.get('split', 'test')} examples",
        f"perplexity {stored.settings.get('perplexity', 30):g}",
        f"{first['model'].item()} model, round {int(first['round'])}",
        "open points: classes beyond the eighth" if 8 < len(np.unique(first["label"])) <= 16 else "",
        "crosses: taken for another class",
    ]
    return [Drawing(figure, rows, join_caption([*describe_setting(runs), *said, *describe_measurement([stored])]))]


def _draw_panel(axes: Axes, run: Run, data: xr.Dataset) -> list[Row]:
    """Points of one round and model, a class at a time; its number where most of them are."""
    points, predicted, labels = (data[name].values for name in ("tsne", "predicted", "label"))
    classes, (x, y) = np.unique(labels), points.T
    axes.grid(False)
    axes.set_xticks([])
    axes.set_yticks([])
    if not np.isfinite(points).any():
        mark_empty(axes)
    for place, name in enumerate(classes):
        color, filled = _choose_color(place, len(classes))
        right, wrong = (labels == name) & (predicted == name), (labels == name) & (predicted != name)
        inside = color if filled else "none"
        axes.scatter(x[right], y[right], s=SIZE, facecolors=inside, edgecolors=color, linewidths=0.8)
        axes.scatter(x[wrong], y[wrong], s=2 * SIZE, marker="x", color=color, linewidths=0.8)
    if len(classes) <= NAMED and np.isfinite(points).any():
        for name in classes:  # after all points, so that none hides them
            own = points[labels == name]
            _write_name(axes, own[np.isfinite(own).all(axis=1)], str(name))
    return [
        {
            "run": run.name,
            "algorithm": run.algorithm,
            "example": int(example),
            "class": int(name),
            "predicted": int(guess),
            "x": x,
            "y": y,
        }
        for example, name, guess, x, y in zip(data["example_index"].values, labels, predicted, *points.T, strict=True)
    ]


def _write_name(axes: Axes, points: NDArray[np.float64], text: str) -> None:
    """At the point that is nearest to the middle of the class: between two clusters there may be another class."""
    if not len(points):
        return
    middle = np.median(points, axis=0)
    x, y = points[np.argmin(np.linalg.norm(points - middle, axis=1))]
    outline = [withStroke(linewidth=2.5, foreground="white")]
    axes.text(x, y, text, fontsize=11, fontweight="bold", ha="center", va="center", path_effects=outline)


def _choose_color(place: int, count: int) -> tuple[ColorType, bool]:
    """Of a class, and whether its points are filled: eight colours filled, the same open, or a scale for many."""
    if count <= 2 * len(OKABE_ITO):
        return OKABE_ITO[place % len(OKABE_ITO)], place < len(OKABE_ITO)
    return matplotlib.colormaps[MAGNITUDE](place / (count - 1)), True


FIGURE = Figure(
    name="features",
    topic="good",
    title="How the network sees the classes (t-SNE)",
    reading="Clouds of one class each are easy to tell apart; the size of clouds and the space between mean nothing.",
    needs=("features",),
    draw=draw,
)
