"""Examples as the network sees them, onto given axes: t-SNE of what enters its classifier, coloured by class."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.typing import ColorType
from numpy.typing import NDArray

from landscape.plotting.style import MAGNITUDE, OKABE_ITO
from reports.plotting.fitting import draw_shared_legend
from reports.plotting.heat import list_class_names, mark_empty
from reports.rows import Row

SIZE = 8  # of a point, in all panels
NAMED = 30  # classes that get their number written; more would cover the points


def draw_embedding(axes: Axes, data: xr.Dataset, names: Sequence[str] = (), letters: float = 11) -> list[Row]:
    """Draw the points of one round and model, a class at a time; its name where most of them are.

    data: of the study `features`, one round and model.
    names: of classes; none: their numbers. letters: their size in points.
    """
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
            text = names[name] if name < len(names) else str(name)
            _write_name(axes, own[np.isfinite(own).all(axis=1)], text, letters)
    return [
        {
            "example": int(example),
            "class": int(name),
            "predicted": int(guess),
            "x": x,
            "y": y,
        }
        for example, name, guess, x, y in zip(data["example_index"].values, labels, predicted, *points.T, strict=True)
    ]


def draw_class_keys(
    figure: Figure, axes: Axes, data: str, classes: NDArray[np.int64], given: Sequence[str] = ()
) -> None:
    """Draw a legend of the classes below all panels, where there are not too many to tell apart.

    axes: of any panel. data: the data set, whose classes may have names. given: those that it gives itself, if it does.
    """
    if len(classes) > 2 * len(OKABE_ITO):
        return
    for place, (number, name) in enumerate(zip(classes, list_class_names(data, classes, given), strict=True)):
        color, filled = _choose_color(place, len(classes))
        text = f"{number}: {name}" if name != str(number) else f"class {number}"
        axes.scatter([], [], s=SIZE, facecolors=color if filled else "none", edgecolors=color, label=text)
    draw_shared_legend(figure, 5)


def _write_name(axes: Axes, points: NDArray[np.float64], text: str, letters: float) -> None:
    """At the point that is nearest to the middle of the class: between two clusters there may be another class."""
    if not len(points):
        return
    middle = np.median(points, axis=0)
    x, y = points[np.argmin(np.linalg.norm(points - middle, axis=1))]
    outline = [withStroke(linewidth=2.5, foreground="white")]
    axes.text(x, y, text, fontsize=letters, fontweight="bold", ha="center", va="center", path_effects=outline)


def _choose_color(place: int, count: int) -> tuple[ColorType, bool]:
    """Of a class, and whether its points are filled: eight colours filled, the same open, or a scale for many."""
    if count <= 2 * len(OKABE_ITO):
        return OKABE_ITO[place % len(OKABE_ITO)], place < len(OKABE_ITO)
    return matplotlib.colormaps[MAGNITUDE](place / (count - 1)), True
