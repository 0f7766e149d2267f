"""What a setting does: accuracy and sharpness against its values, one line per method, spread over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.progress import select_counted
from reports.inputs.runs import Collection, Run, label_score, name_score
from reports.inputs.summary import group
from reports.names import name_setting
from reports.plotting.fitting import draw_shared_legend, fit_axis
from reports.plotting.heat import make_panels
from reports.quantities.measures import MEASURES, Measure
from reports.rows import Row
from reports.variants import Variant, find_numeric_settings, find_variants, flatten_settings, get_number

SHOWN = ("accuracy", "lambda_1", "everyone", "incompatibility")
APART = 0.12  # how far lines are moved against each other, so that bars stay visible


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a picture for each setting of numbers in which runs of a method differ."""
    drawn = [_draw_one(runs, everything, key) for key in find_numeric_settings(runs)]
    return [one for one in drawn if one is not None]


def _draw_one(runs: Sequence[Run], everything: Collection, key: str) -> Drawing | None:
    """All else equal: runs of a line differ in this setting and in the seed alone."""
    eligible = [run for run in runs if key in flatten_settings(run)]
    lines = find_variants(eligible, everything, apart=(key,))
    lines = [line for line in lines if len({get_number(run, key) for run in line.runs}) > 1]
    points = {name: [_average_seeds(line, key, MEASURES[name]) for line in lines] for name in SHOWN}
    points = {name: averages for name, averages in points.items() if any(len(one) > 1 for one in averages)}
    if not points:
        return None
    values = sorted({get_number(run, key) for line in lines for run in line.runs})
    figure, panels = make_panels(len(points), columns=2 if len(points) in (2, 4) else 3, width=4.2, height=3.2)
    rows: list[Row] = []
    for axes, (name, averages) in zip(panels, points.items(), strict=True):
        rows += _draw_panel(axes, lines, averages, values, key)
        label = label_score(eligible) if name == "accuracy" else MEASURES[name].label
        label_axes(axes, name_setting(key), label)
        for row in rows:
            row.setdefault("measure", name_score(eligible) if name == "accuracy" else name)
    draw_shared_legend(figure)
    seeds = max(int(row["runs"]) for row in rows)
    remarks = [
        "values evenly spaced, not to scale",
        "all other settings equal along a line",
        f"bars: standard deviation over up to {seeds} seeds" if seeds > 1 else f"seed {eligible[0].seed}",
        f"{name_score(eligible)}: mean over the last evaluated rounds, of the SWA model where there is one",
    ]
    return Drawing(figure, rows, join_caption([runs[0].data_name, *remarks]), f"_{key.replace('.', '_')}")


def _average_seeds(line: Variant, key: str, measure: Measure) -> list[Row]:
    """Average a measure over seeds at every value of the setting where it was measured."""
    runs: dict[float, list[Run]] = {}
    for run in line.runs:
        runs.setdefault(get_number(run, key), []).append(run)
    numbers = [
        {"value": value, "seed": run.seed, "number": measure.find(run)}
        for value, some in runs.items()
        for run in select_counted(some)
    ]
    means = group([row for row in numbers if np.isfinite(row["number"])], ["value"])
    return sorted(means, key=lambda row: float(row["value"]))


def _draw_panel(
    axes: Axes, lines: Sequence[Variant], averages: Sequence[list[Row]], values: Sequence[float], key: str
) -> list[Row]:
    rows = []
    for number, (line, points) in enumerate(zip(lines, averages, strict=True)):
        if not points:
            continue
        shift = APART * ((number + 0.5) / len(lines) - 0.5)
        positions = [values.index(point["value"]) + shift for point in points]
        mean = np.asarray([point["number"] for point in points])
        spread = np.nan_to_num(np.asarray([point["number_spread"] for point in points]))  # one seed: no bar
        style = f"{line.look.marker}{line.look.line}"
        bars = axes.errorbar(
            positions, mean, yerr=spread, fmt=style, color=line.look.color, capsize=2, label=line.label
        )
        mark(bars.get_children(), line.names)
        rows += [
            {
                "line": line.label,
                "setting": key,
                "value": point["value"],
                "mean": point["number"],
                "spread": point["number_spread"],
                "runs": point["rows"],
            }
            for point in points
        ]
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set_xlim(-0.3, len(values) - 0.7)
    fit_axis(axes, "y", [row["mean"] for row in rows])
    return rows


FIGURE = Figure(
    name="setting",
    topic="good",
    title="What a setting does",
    reading="A flat line: the setting hardly matters to that method. Compare peaks, not points within the bars.",
    needs=(),
    draw=draw,
    wants="runs of a method that differ in a setting",
    across=True,
)
