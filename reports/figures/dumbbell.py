"""Flat for whom: every participant's model on its own data and on everyone's, joined by a line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.fitting import draw_shared_legend, fit_axis, select_finite
from reports.plotting.heat import make_panels
from reports.plotting.measured import describe_measurement, describe_setting, find_answers, get_data, select_runs
from reports.quantities.measures import find_last_participants
from reports.rows import Row
from reports.variants import choose_shown, describe_shown, find_variants, make_titles

ROOM = 0.2  # inches for one client
MOST = 30  # clients named along the axis


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw the largest eigenvalue of each local model on its own data and on everyone's, a panel for each run."""
    measured = select_runs(runs, "local_global", "local_eigenvalue")
    colours = {run.name: one.look.color for one in find_variants(measured, everything) for run in one.runs}
    ordered = choose_shown(measured, everything)
    if not ordered:
        return []
    most = max(len(_find_last(run)["client"]) for run in ordered)
    figure, axes = make_panels(len(ordered), columns=4, width=2.8, height=min(1.6 + ROOM * max(most, 8), 9.0))
    names, rows, order = make_titles(ordered, everything), list[Row](), _sort_clients(ordered)
    for panel, run in zip(axes, ordered, strict=True):
        rows += _draw_panel(panel, run, colours[run.name], names[run.name], order)
    numbers = select_finite([row[key] for row in rows for key in ("own", "everyone", "global_model")])
    for panel in axes:
        fit_axis(panel, "x", numbers)
        if len(numbers):
            low, high = numbers.min(), numbers.max()
            panel.set_xlim(0.8 * low if low > 0 else low - 0.1 * (high - low), 1.25 * high)
    _explain(axes[0])
    draw_shared_legend(figure)
    rounds = sorted({row["round"] for row in rows})
    remarks = [
        f"round {', '.join(map(str, rounds))}",
        "largest eigenvalue of the training loss, bars: residuals",
        "clients in the order of their sharpness on everyone's data, in the mean over panels",
        describe_shown(ordered, measured),
        *describe_measurement(find_answers(ordered, "local_global")),
    ]
    return [Drawing(figure, rows, join_caption([*describe_setting(ordered), *remarks]))]


def _find_last(run: Run) -> xr.Dataset:
    """The largest eigenvalues of the last round's participants."""
    return find_last_participants(get_data(run, "local_global"), "distance").sel(rank=1)


def _sort_clients(runs: Sequence[Run]) -> list[int]:
    """Sort clients by sharpness on everyone's data, in the mean over runs: the same order in every panel."""
    found: dict[int, list[float]] = {}
    for run in runs:
        last = _find_last(run)
        for client, value in zip(last["client"].values, last["global_eigenvalue"].values, strict=True):
            found.setdefault(int(client), []).append(float(value))
    return sorted(found, key=lambda client: float(np.mean(found[client])))


def _explain(axes: Axes) -> None:
    """Explain filled, open and dashed marks in the legend, in a neutral colour."""
    axes.plot([], [], "o", color="0.4", label="client's model, own data")
    axes.plot([], [], "o", color="white", markeredgecolor="0.4", label="client's model, everyone's data")
    axes.plot([], [], "--", color="0.4", label="global model, everyone's data")


def _draw_panel(axes: Axes, run: Run, color: str, title: str, order: Sequence[int]) -> list[Row]:
    last = _find_last(run)
    last = last.isel(client=np.argsort([order.index(int(client)) for client in last["client"].values]))
    clients, own, everyone = (last[name].values for name in ("client", "local_eigenvalue", "global_eigenvalue"))
    near, far = (last[f"{side}_residual"].values for side in ("local", "global"))
    whole, heights = float(last["global_model_eigenvalue"]), np.arange(len(clients))
    axes.hlines(heights, own, everyone, color=color, alpha=0.5)
    axes.plot(own, heights, "o", color=color)
    axes.plot(everyone, heights, "o", color="white", markeredgecolor=color)
    axes.axvline(whole, linestyle="--", color="0.4")
    for values, doubts in ((own, near), (everyone, far)):
        axes.errorbar(values, heights, xerr=doubts, fmt="none", ecolor=color, capsize=2, zorder=1.5)  # below the dots
    every = -(-len(heights) // MOST)
    axes.set_yticks(heights[::every], [str(client) for client in clients[::every]])
    axes.set_ylim(-0.6, len(heights) - 0.4)
    label_axes(axes, "largest eigenvalue", "client", title)
    mark(axes, [run.name])
    return [
        {
            "run": run.name,
            "algorithm": run.algorithm,
            "round": int(last["round"]),
            "client": int(client),
            "own": float(own[row]),
            "own_residual": float(near[row]),
            "everyone": float(everyone[row]),
            "everyone_residual": float(far[row]),
            "global_model": whole,
        }
        for row, client in enumerate(clients)
    ]


FIGURE = Figure(
    name="local_global",
    topic="agree",
    title="Sharpness of local models, seen from each client and from everyone",
    reading="A long line is a model that is flat for its own client and sharp for everyone: the incompatibility.",
    needs=("local_global",),
    draw=draw,
)
