"""Two settings at once: final accuracy (or mean IoU) of every combination as a heat map, one per method."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.progress import select_counted
from reports.inputs.runs import Collection, Run, label_score, name_score
from reports.inputs.summary import mean_known
from reports.names import name_setting
from reports.plotting.heat import draw_colour_bar, draw_heat, find_span, make_panels, write_values
from reports.quantities.measures import MEASURES
from reports.rows import Row
from reports.variants import Variant, find_numeric_settings, find_variants, flatten_settings, get_number

ACCURACY = MEASURES["accuracy"]


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a picture for each pair of settings that a method was run with in combination."""
    pairs = combinations(find_numeric_settings(runs), 2)
    drawn = [_draw_one(runs, everything, across, up) for across, up in pairs]
    return [one for one in drawn if one is not None]


def _draw_one(runs: Sequence[Run], everything: Collection, across: str, up: str) -> Drawing | None:
    eligible = [run for run in runs if across in flatten_settings(run) and up in flatten_settings(run)]
    crossed = [one for one in find_variants(eligible, everything, apart=(across, up)) if _are_crossed(one, across, up)]
    tables = [_average_seeds(one, across, up) for one in crossed]
    limits = find_span(values for _, _, values in tables)
    if limits is None:
        return None
    figure, panels = make_panels(len(crossed), columns=3, width=3.4, height=3.0)
    rows: list[Row] = []
    for axes, one, (x, y, values) in zip(panels, crossed, tables, strict=True):
        image = draw_heat(axes, values, [f"{value:g}" for value in x], [f"{value:g}" for value in y], limits)
        write_values(axes, image, ".1f")
        label_axes(axes, name_setting(across), name_setting(up), one.label)
        mark(axes, one.names)
        rows += [
            {"method": one.label, across: x[j], up: y[i], name_score(one.runs): value}
            for (i, j), value in np.ndenumerate(values)
        ]
    draw_colour_bar(figure, image, panels, label_score(eligible))
    seeds = sorted({run.seed for one in crossed for run in one.runs})
    remarks = [
        "mean over the last evaluated rounds",
        f"mean over seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}",
        "hatched: not run, or diverged",
    ]
    suffix = f"_{across}_{up}".replace(".", "_")
    return Drawing(figure, rows, join_caption([runs[0].data_name, *remarks]), suffix)


def _are_crossed(one: Variant, across: str, up: str) -> bool:
    """Tell whether two values of each setting were combined with each other."""
    pairs = {(get_number(run, across), get_number(run, up)) for run in one.runs}
    columns = {x: {y for other, y in pairs if other == x} for x, _ in pairs}
    return any(len(first & second) > 1 for first, second in combinations(columns.values(), 2))


def _average_seeds(one: Variant, across: str, up: str) -> tuple[list[float], list[float], NDArray[np.float64]]:
    """Values of both settings, and the mean accuracy over seeds (up, across); NaN where nothing was run."""
    runs: dict[tuple[float, float], list[Run]] = {}
    for run in one.runs:
        runs.setdefault((get_number(run, up), get_number(run, across)), []).append(run)
    numbers = {pair: [ACCURACY.find(run) for run in select_counted(some)] or [np.nan] for pair, some in runs.items()}
    x, y = (sorted({key[axis] for key in numbers}) for axis in (1, 0))
    cells = [[float(mean_known(np.asarray(numbers.get((row, column), [np.nan])))) for column in x] for row in y]
    return x, y, np.asarray(cells)


FIGURE = Figure(
    name="two_settings",
    topic="good",
    title="Two settings at once",
    reading="A broad bright area is a method that is easy to tune; a lone bright spot is found by luck.",
    needs=(),
    draw=draw,
    wants="runs of a method that differ in two settings",
    across=True,
)
