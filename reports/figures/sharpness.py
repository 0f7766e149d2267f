"""How much the loss rises around global and local models, by every kind of sharpness that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.palette import Look
from reports.plotting.fitting import draw_shared_legend, fit_axis
from reports.plotting.heat import make_panels
from reports.plotting.measured import describe_measurement, describe_setting, find_answers, get_data, select_runs
from reports.quantities.measures import find_last_participants
from reports.rows import Row
from reports.variants import find_variants

PANELS = {  # how names of variables begin: what was looked at
    "global_model": "global model, everyone's data",
    "local": "local models, own data",
    "global": "local models, everyone's data",
}
KINDS = {
    "sam": "SAM",
    "sam_max": "SAM\nmaximum",
    "asam": "ASAM",
    "asam_all": "ASAM with\nbiases",
    "asam_max": "ASAM\nmaximum",
    "average": "average",
    "average_adaptive": "adaptive\naverage",
    "keskar": "Keskar\n(%)",
}
SPREAD = 0.8  # of the room between two groups that is filled


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw points for every kind of sharpness; bars would mean nothing along a logarithmic axis."""
    measured = select_runs(runs, "sharpness", "global_model_value")
    shown = {prefix: title for prefix, title in PANELS.items() if any(_has(run, prefix) for run in measured)}
    if not shown:
        return []
    figure, axes = make_panels(len(shown) + 1, columns=2, width=4.4, height=3.0)
    rows: list[Row] = []
    for panel, (prefix, title) in zip(axes, shown.items(), strict=False):
        kinds = list(dict.fromkeys(kind for run in measured if _has(run, prefix) for kind in _list_kinds(run)))
        drawn: list[Row] = []
        for run, look, name, shift in _place_points(measured, everything):
            if _has(run, prefix):
                groups = [kinds.index(kind) for kind in _list_kinds(run)]
                numbers = _average(run, prefix, "value")
                _draw_points(panel, run, look, name, np.asarray(groups) + shift, *numbers)
                drawn += _list_rows(run, title, _list_kinds(run), *numbers)
        panel.set_xticks(range(len(kinds)), [KINDS.get(kind, kind) for kind in kinds], fontsize=8)
        label_axes(panel, "kind of sharpness", "rise of the loss", title)
        fit_axis(panel, "y", [row["mean"] for row in drawn])
        rows += drawn
    rows += _draw_gradients(axes[-1], measured, shown, everything)
    draw_shared_legend(figure)
    return [Drawing(figure, rows, join_caption([*describe_setting(measured), *_describe(measured)]))]


def _list_kinds(run: Run) -> list[str]:
    return [str(kind) for kind in get_data(run, "sharpness")["kind"].values]


def _has(run: Run, prefix: str) -> bool:
    return f"{prefix}_value" in get_data(run, "sharpness")


def _place_points(runs: Sequence[Run], everything: Collection) -> Iterator[tuple[Run, Look, str, float]]:
    """Yield every run with its look, its name in the legend, and the position of its point in a group."""
    width, bars = SPREAD / len(runs), 0
    for variant in find_variants(runs, everything):
        for number, run in enumerate(variant.runs):
            yield run, variant.look, "_" if number else variant.label, (bars + 0.5) * width - SPREAD / 2
            bars += 1


def _average(run: Run, prefix: str, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return numbers and standard errors of the last round: of the global model, or means over participants."""
    data = get_data(run, "sharpness")
    if prefix == "global_model":
        last = data.isel(round=-1)
        values = last[f"{prefix}_{name}"].values
        return values, last[f"{prefix}_standard_error"].values if name == "value" else np.full(len(values), np.nan)
    values = find_last_participants(data, f"{prefix}_base")[f"{prefix}_{name}"].transpose("client", "kind").values
    count = len(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(values.shape[1], np.nan)
    return values.mean(axis=0), error


def _draw_points(
    axes: Axes,
    run: Run,
    look: Look,
    name: str,
    positions: NDArray[np.float64],
    values: NDArray[np.float64],
    error: NDArray[np.float64],
) -> None:
    points = axes.errorbar(positions, values, error, fmt=look.marker, color=look.color, capsize=2, label=name)
    mark(points, [run.name])


def _draw_gradients(axes: Axes, runs: Sequence[Run], shown: dict[str, str], everything: Collection) -> list[Row]:
    """Draw the norms of the gradient: away from a minimum, radius times this norm is most of the rise."""
    rows: list[Row] = []
    for run, look, name, shift in _place_points(runs, everything):
        for group, (prefix, title) in enumerate(shown.items()):
            if _has(run, prefix):
                value, error = (some[:1] for some in _average(run, prefix, "gradient_norm"))  # the same for every kind
                _draw_points(axes, run, look, name, np.asarray([group + shift]), value, error)
                rows += _list_rows(run, title, ["gradient norm"], value, error)
    axes.set_xticks(range(len(shown)), [title.replace(", ", ",\n") for title in shown.values()], fontsize=8)
    label_axes(axes, "model and data", "norm of the gradient", "gradient there")
    fit_axis(axes, "y", [row["mean"] for row in rows])
    return rows


def _list_rows(
    run: Run, title: str, kinds: Sequence[str], values: NDArray[np.float64], errors: NDArray[np.float64]
) -> list[Row]:
    about = {"run": run.name, "algorithm": run.algorithm, "of": title}
    return [
        {**about, "kind": kind, "mean": float(value), "standard_error": float(error)}
        for kind, value, error in zip(kinds, values, errors, strict=True)
    ]


def _describe(runs: Sequence[Run]) -> list[str]:
    rounds = sorted({int(get_data(run, "sharpness")["round"][-1]) for run in runs})
    radii: dict[str, list[str]] = {}
    for kind, radius in zip(_list_kinds(runs[0]), get_data(runs[0], "sharpness")["radius"].values, strict=True):
        radii.setdefault(f"{radius:g}", []).append(KINDS.get(kind, kind).replace("\n", " "))
    described = ", ".join(f"{radius} ({', '.join(kinds)})" for radius, kinds in radii.items())
    return [
        f"round {', '.join(map(str, rounds))}",
        f"radius or deviation {described}",
        "error bars: standard error over samples (global model) or over participants (local models)",
        "training loss",
        *describe_measurement(find_answers(runs, "sharpness")),
    ]


FIGURE = Figure(
    name="sharpness",
    topic="flat",
    title="How much the loss rises around the models",
    reading="Lower is flatter, within one kind; each kind has its own radius. A large gradient norm shows that the "
    "model is not at a minimum, and most of the rise is slope.",
    needs=("sharpness",),
    draw=draw,
)
