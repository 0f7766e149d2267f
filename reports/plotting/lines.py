"""A line over rounds for every variant: the mean over its seeds, and their range as a band."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from landscape.plotting.style import mark
from reports.inputs.runs import Run
from reports.inputs.summary import mean_known
from reports.rows import Row
from reports.variants import Variant

Series = tuple[NDArray[Any], NDArray[Any]]  # places along the axis, and values there
MARKERS = 8  # on a line, at most: they tell lines apart in grey print
NOTHING: Series = (np.empty(0), np.empty(0))


def draw_mean_line(
    axes: Axes, variant: Variant, find: Callable[[Run], Series], metric: str, *, x: str = "round", **more: Any
) -> list[Row]:
    """Draw the mean over seeds where all of them have a value, with their range as a band; return the numbers.

    variant: the method and its seeds.
    find: finds what is drawn of one run, empty where it was not measured.
    metric: what the rows call it.
    x: what the rows call the places along the x axis.
    more: further options of matplotlib's `plot`.
    """
    known = [(run, dict(zip(*find(run), strict=True))) for run in variant.shown]
    known = [(run, values) for run, values in known if values]
    if not known:
        return []
    places = sorted(set.intersection(*(set(values) for _, values in known)))
    values = np.asarray([[one[place] for place in places] for _, one in known], dtype=np.float64)
    mean = mean_known(values)
    names, look = [run.name for run, _ in known], variant.look
    line: dict[str, Any] = {"label": variant.label, "linestyle": look.line, "color": look.color, "marker": look.marker}
    line |= {"markevery": -(-len(places) // MARKERS)} | more
    mark(axes.plot(places, mean, **line), names)
    low, high = (np.fmin.reduce(values), np.fmax.reduce(values))
    if len(values) > 1:
        mark(axes.fill_between(places, low, high, color=look.color, alpha=0.15, linewidth=0), names)
    about = {"algorithm": variant.label, "metric": metric}
    return [
        {**about, x: _plain(place), "mean": mean[i], "lowest": low[i], "highest": high[i], "seeds": len(values)}
        for i, place in enumerate(places)
    ]


def _plain(place: float) -> int | float:
    return int(place) if float(place).is_integer() else float(place)
