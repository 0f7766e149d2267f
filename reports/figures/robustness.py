"""Accuracy under the common corruptions: a dot per method and corruption, beside the clean accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from landscape.plotting.style import join_caption, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run, name_accuracy
from reports.inputs.summary import mean_known
from reports.plotting.fitting import draw_shared_legend
from reports.plotting.measured import describe_measurement, describe_setting, find_answers
from reports.rows import Row
from reports.variants import Variant, find_variants

APART = 0.7  # share of a corruption's row that its dots spread over


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a row of dots for each corruption, the worst at the bottom."""
    measured = [run for run in runs if run.measured("robustness") is not None]
    if not measured:
        return []
    names = _sort_corruptions(measured)
    figure, (axes,) = make_canvas(width=6.4, height=1.2 + 0.36 * len(names))
    variants = find_variants(measured, everything)
    rows: list[Row] = []
    for number, variant in enumerate(variants):
        shift = APART * (0.5 - (number + 0.5) / len(variants))
        rows += _draw_dots(axes, variant, names, shift)
    for row in range(1, len(names), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="0.95", linewidth=0, zorder=0)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(False, axis="y")
    label_axes(axes, f"{name_accuracy(measured)} (%), mean over severities", "corruption")
    draw_shared_legend(figure)
    stored = find_answers(measured, "robustness")
    first = _find(measured[0])
    severities = ", ".join(str(one) for one in first["severity"].values)
    doubt = (
        "range over seeds"
        if len(variants) < len(measured)
        else "standard errors (at most: severities share their images)"
    )
    count = f"{int(first.attrs['total'])} {stored[0].settings.get('split', 'test')} images"
    skipped = first.attrs.get("left_out", "")
    lacking = f"does not apply to these images: {skipped}" if skipped else ""
    remarks = [count, lacking, f"severities {severities}", f"bars: {doubt}", "dashed: accuracy on clean images"]
    return [Drawing(figure, rows, join_caption([*describe_setting(measured), *remarks, *describe_measurement(stored)]))]


def _find(run: Run) -> xr.Dataset:
    """The measurements of the last round."""
    data = run.measured("robustness")
    assert data is not None
    return data.isel(round=-1)


def _sort_corruptions(runs: Sequence[Run]) -> list[str]:
    """Every corruption, the worst at the bottom."""
    accuracies: dict[str, list[float]] = {}
    for run in runs:
        means = _find(run)["mean_by_corruption"]
        for name, value in zip(means["corruption"].values, means.values, strict=True):
            accuracies.setdefault(str(name), []).append(float(value))
    return sorted(accuracies, key=lambda name: float(mean_known(np.asarray(accuracies[name]))))


def _find_values(run: Run, names: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return per cent under each corruption, standard errors, and per cent on clean images; NaN: not measured."""
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
    look, heights = variant.look, np.arange(len(names)) + shift
    bars = axes.errorbar(
        mean,
        heights,
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
