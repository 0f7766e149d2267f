"""Accuracy under the common corruptions: a dot per method and corruption, beside the clean accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from analysis.summary import mean_known
from reports.figure import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.fitting import draw_shared_legend
from reports.plotting.measured import describe_measurement, describe_setting, find_answers
from reports.plotting.style import join_caption, label_axes, make_canvas, mark
from reports.rows import Row
from reports.variants import Variant, find_variants

APART = 0.7  # share of a corruption's row that its dots spread over


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a row of dots for each corruption, the worst at the bottom."""
    known = [run for run in runs if run.measured("robustness") is not None]
    if not known:
        return []
    names = _sort_corruptions(known)
    figure, (axes,) = make_canvas(width=6.4, height=1.2 + 0.36 * len(names))
    found = find_variants(known, everything)
    rows: list[Row] = []
    for place, variant in enumerate(found):
        shift = APART * (0.5 - (place + 0.5) / len(found))
        rows += _draw_dots(axes, variant, names, shift)
    for place in range(1, len(names), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="0.95", linewidth=0, zorder=0)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(False, axis="y")
    label_axes(axes, "accuracy (%), mean over severities", "corruption")
    draw_shared_legend(figure)
    stored = find_answers(known, "robustness")
    first = _find(known[0])
    severities = ", ".join(str(one) for one in first["severity"].values)
    doubt = (
        "range over seeds" if len(found) < len(known) else "standard errors (at most: severities share their images)"
    )
    count = f"{int(first.attrs['total'])} {stored[0].settings.get('split', 'test')} images"
    skipped = first.attrs.get("left_out", "")
    lacking = f"not for such images: {skipped}" if skipped else ""
    said = [count, lacking, f"severities {severities}", f"bars: {doubt}", "dashed: accuracy on clean images"]
    return [Drawing(figure, rows, join_caption([*describe_setting(known), *said, *describe_measurement(stored)]))]


def _find(run: Run) -> xr.Dataset:
    """What the last round gave."""
    data = run.measured("robustness")
    assert data is not None
    return data.isel(round=-1)


def _sort_corruptions(runs: Sequence[Run]) -> list[str]:
    """Every corruption, the worst at the bottom."""
    found: dict[str, list[float]] = {}
    for run in runs:
        means = _find(run)["mean_by_corruption"]
        for name, value in zip(means["corruption"].values, means.values, strict=True):
            found.setdefault(str(name), []).append(float(value))
    return sorted(found, key=lambda name: float(mean_known(np.asarray(found[name]))))


def _find_values(run: Run, names: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Per cent under each corruption, standard errors, and on clean images; NaN for a corruption that it has not."""
    data = _find(run).reindex(corruption=list(names))
    error = data["standard_error"].mean("severity", skipna=False)
    return 100 * data["mean_by_corruption"].values, 100 * error.values, 100 * float(data["clean_accuracy"])


def _draw_dots(axes: Axes, variant: Variant, names: Sequence[str], shift: float) -> list[Row]:
    every = [_find_values(run, names) for run in variant.shown]
    values, clean = np.stack([one[0] for one in every]), float(mean_known(np.asarray([one[2] for one in every])))
    mean = mean_known(values)
    low, high = (
        (mean - every[0][1], mean + every[0][1]) if len(every) == 1 else (values.min(axis=0), values.max(axis=0))
    )
    look, places = variant.look, np.arange(len(names)) + shift
    bars = axes.errorbar(
        mean,
        places,
        xerr=[mean - low, high - mean],
        fmt=look.marker,
        color=look.color,
        label=variant.label,
        markersize=4,
    )
    line = axes.axvline(clean, linestyle="--", color=look.color, linewidth=1.0, alpha=0.8)
    mark([*bars.get_children(), line], variant.names)
    about: Row = {"algorithm": variant.label, "seeds": len(every), "clean_accuracy": clean}
    return [
        {**about, "corruption": name, "accuracy": mean[i], "low": low[i], "high": high[i]}
        for i, name in enumerate(names)
    ]


FIGURE = Figure(
    name="robustness",
    topic="good",
    title="Accuracy under corruptions",
    reading="The further a dot lies left of its dashed line, the more this corruption costs the method.",
    needs=("robustness",),
    draw=draw,
)
