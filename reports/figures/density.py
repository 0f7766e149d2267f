"""The whole spectrum as a density on a logarithmic axis, with its ends marked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from landscape.plotting.style import draw_legend, join_caption, label_axes, make_canvas, mark, write_powers
from reports.figure_type import Drawing, Figure
from reports.figures.eigenvalues import describe_models
from reports.inputs.runs import Collection, Run
from reports.palette import Look
from reports.plotting.fitting import select_finite
from reports.plotting.heat import mark_empty
from reports.plotting.measured import describe_measurement, describe_setting, find_answers, get_data, select_runs
from reports.rows import Row, list_numbers
from reports.variants import find_variants

POINTS = 400  # along the axis of eigenvalues
MARGIN = 4.0  # standard deviations of the kernel that are shown beyond the ends
DEEPEST = 1e-9  # of the highest density: lower values are not shown


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw the density of eigenvalues of every run in one panel."""
    measured = select_runs(runs, "curvature", "node")
    if not measured:
        return []
    figure, (axes,) = make_canvas(width=7.2)
    label_axes(axes, "eigenvalue of the Hessian", "density of eigenvalues")
    width = max((_find_resolution(run) for run in measured), default=0.0)
    grid = _make_grid(measured, width)
    rows: list[Row] = []
    drawn = 0
    for variant in find_variants(measured, everything):
        for number, run in enumerate(variant.runs):
            if not width:
                continue
            rows += _draw_curve(axes, run, grid, width, variant.look, "_" if number else variant.label)
            rows += _draw_ends(axes, run, variant.look, 0.02 + 0.03 * drawn)
            drawn += 1
    if rows:
        axes.set_yscale("log")
        write_powers(axes.yaxis)
        axes.set_ylim(*_find_limits(rows))
        draw_legend(axes, loc="upper right")
    else:
        mark_empty(axes)
    return [Drawing(figure, rows, join_caption([*describe_setting(measured), *_describe(measured, width)]))]


def _find_last(run: Run) -> xr.Dataset:
    """Return the last round whose density was measured."""
    data = get_data(run, "curvature")
    rounds = np.flatnonzero(data["node"].notnull().any(("probe", "step")))
    return data.isel(round=rounds[-1] if len(rounds) else -1)


def _quadrature(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and weights (probe, step) of that round; NaN where a probe needed fewer steps."""
    last = _find_last(run)
    return last["node"].values, last["weight"].values


def _find_resolution(run: Run) -> float:
    """Return the span of the nodes divided by their number: what the quadrature can tell apart."""
    nodes, _ = _quadrature(run)
    finite = select_finite(nodes)
    return float(np.ptp(finite)) / int(np.isfinite(nodes).sum(axis=1).max()) if len(finite) else 0.0


def _make_grid(runs: Sequence[Run], width: float) -> NDArray[np.float64]:
    nodes = np.concatenate([select_finite(_quadrature(run)[0]) for run in runs])
    low, high = (nodes.min(), nodes.max()) if len(nodes) else (0.0, 1.0)
    return np.linspace(low - MARGIN * width, high + MARGIN * width, POINTS)


def smooth(
    grid: NDArray[np.float64], nodes: NDArray[np.float64], weights: NDArray[np.float64], width: float
) -> NDArray[np.float64]:
    """Estimate the density by each probe: a Gaussian around every node.

    grid: where the density is wanted.
    nodes, weights: (probe, step) of the quadrature.
    width: standard deviation of the Gaussians.
    Returns the densities (probe, grid).
    """
    distance = (grid[:, None] - np.nan_to_num(nodes)[:, None, :]) / width
    kernel = np.exp(-0.5 * distance**2) / (width * np.sqrt(2 * np.pi))
    density: NDArray[np.float64] = (kernel * np.nan_to_num(weights)[:, None, :]).sum(axis=2)
    return density


def _draw_curve(axes: Axes, run: Run, grid: NDArray[np.float64], width: float, look: Look, name: str) -> list[Row]:
    each = smooth(grid, *_quadrature(run), width)
    mean, low, high = each.mean(axis=0), each.min(axis=0), each.max(axis=0)
    mark(axes.plot(grid, mean, look.line, color=look.color, label=name), [run.name])
    mark(axes.fill_between(grid, low, high, color=look.color, alpha=0.2, linewidth=0), [run.name])
    about = {"run": run.name, "algorithm": run.algorithm}
    return [
        {**about, "eigenvalue": x, "density": y, "low": down, "high": up}
        for x, y, down, up in zip(grid, mean, low, high, strict=True)
    ]


def _draw_ends(axes: Axes, run: Run, look: Look, height: float) -> list[Row]:
    """Mark both ends of the spectrum near the lower edge: by Lanczos if it measured them, else the outermost nodes."""
    last = _find_last(run)
    top = float(last["eigenvalue"].sel(rank=1))
    bottom = float(last["smallest"] if "smallest" in last else last["node"].min())
    ends = axes.plot(
        [bottom, top], [height] * 2, look.marker, color=look.color, markersize=4, transform=axes.get_xaxis_transform()
    )
    mark(ends, [run.name])
    about = {"run": run.name, "algorithm": run.algorithm}
    return [{**about, "end": "lambda_min", "eigenvalue": bottom}, {**about, "end": "lambda_max", "eigenvalue": top}]


def _find_limits(rows: Sequence[Row]) -> tuple[float, float]:
    """Choose limits that reach down to the weight of the outermost eigenvalues, so that single ones are visible."""
    curves = [row for row in rows if "density" in row]
    top = max(list_numbers(curves, "high"))
    ends = []
    for name in {row["run"] for row in curves}:
        own = [row for row in curves if row["run"] == name]
        outermost = [row for row in rows if row["run"] == name and "end" in row]
        values, heights = list_numbers(own, "eigenvalue"), list_numbers(own, "density")
        ends += np.interp(list_numbers(outermost, "eigenvalue"), values, heights).tolist()
    return max(0.1 * min(ends), DEEPEST * top), 3 * top


def _describe(runs: Sequence[Run], width: float) -> list[str]:
    last = [_find_last(run) for run in runs]
    rounds = sorted({int(one["round"]) for one in last})
    probes, steps = (last[0].sizes[dim] for dim in ("probe", "step"))
    return [
        f"round {', '.join(map(str, rounds))}",
        f"stochastic Lanczos quadrature, {probes} probes of {steps} steps",
        f"smoothed by a Gaussian of standard deviation {width:.3g}, the same for all",
        "bands: range over probes",
        "markers below: smallest and largest eigenvalue",
        describe_models(runs),
        *describe_measurement(find_answers(runs, "curvature")),
    ]


FIGURE = Figure(
    name="density",
    topic="flat",
    title="Density of the Hessian's eigenvalues",
    reading="Most eigenvalues lie near zero; a few far to the right are the sharp directions, those to the left of "
    "zero are directions in which the loss still falls away.",
    needs=("curvature",),
    draw=draw,
    wants="--set curvature.density=10",
)
