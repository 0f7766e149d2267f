"""The largest eigenvalues of the last round one by one, and the smallest where it was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from landscape.plotting.style import join_caption, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.figures.eigenvalues import describe_models
from reports.inputs.runs import Collection, Run
from reports.palette import Look
from reports.plotting.fitting import draw_shared_legend, fit_axis
from reports.plotting.measured import describe_measurement, describe_setting, find_answers, get_data, select_runs
from reports.rows import Row, list_numbers
from reports.variants import Variant, find_variants

RATIO = 5  # the papers compare the first eigenvalue with this one
SPREAD = 0.6  # of the room between two ranks that the runs share
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
NEGATIVE = "p"  # a marker that no method has


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw the largest eigenvalues of the last round by rank, and the smallest one."""
    measured = select_runs(runs, "curvature", "eigenvalue")
    if not measured:
        return []
    figure, (axes,) = make_canvas(width=7.2, height=4.4)
    rows: list[Row] = []
    shifts = iter(SPREAD * (np.arange(len(measured)) + 0.5) / len(measured) - SPREAD / 2)
    for variant in find_variants(measured, everything):
        look = variant.look
        mark(axes.plot([], [], look.marker, color=look.color, label=_make_name(variant)), variant.names)
        for run in variant.runs:
            rows += _draw_points(axes, run, look, float(next(shifts)))
    if any(value < 0 for value in list_numbers(rows, "eigenvalue")):
        axes.plot([], [], NEGATIVE, color="0.4", markerfacecolor="0.8", label="negative: its size is shown")
    ranks = sorted({row["rank"] for row in rows if isinstance(row["rank"], int)})
    last = ["smallest"] if any(row["rank"] == "smallest" for row in rows) else []
    axes.set_xticks([*ranks, *(ranks[-1] + 1 for _ in last)], [*map(str, ranks), *last])
    label_axes(axes, "rank of the eigenvalue, largest first", "eigenvalue of the Hessian, |λ|")
    fit_axis(axes, "y", np.abs(list_numbers(rows, "eigenvalue")))
    draw_shared_legend(figure, 2)
    rounds = sorted({row["round"] for row in rows})
    remarks = [f"round {', '.join(map(str, rounds))}", "bars: residuals ‖Hv − λv‖", "open markers: not converged"]
    measurement = [describe_models(measured), *describe_measurement(find_answers(measured, "curvature"))]
    return [Drawing(figure, rows, join_caption([*describe_setting(measured), *remarks, *measurement]))]


def _make_name(variant: Variant) -> str:
    """Name a line, with the ratio that tells how much one direction stands out, as its mean over seeds."""
    values = [get_data(run, "curvature")["eigenvalue"].isel(round=-1).values for run in variant.runs]
    rank = min(RATIO, *(len(some) for some in values), len(values[0]))
    ratio = np.mean([some[0] / some[rank - 1] if some[rank - 1] else np.nan for some in values])
    return f"{variant.label}: λ₁/λ{str(rank).translate(SUBSCRIPTS)} = {ratio:.2f}" if rank > 1 else variant.label


def _draw_points(axes: Axes, run: Run, look: Look, shift: float) -> list[Row]:
    last = get_data(run, "curvature").isel(round=-1)
    ranks: list[int | str] = last["rank"].values.tolist()
    positions = last["rank"].values.astype(float)
    values, doubts, sure = (last[name].values for name in ("eigenvalue", "residual", "converged"))
    if "smallest" in last:
        ranks, positions = [*ranks, "smallest"], np.append(positions, positions[-1] + 1)
        values, doubts = np.append(values, last["smallest"]), np.append(doubts, last["smallest_residual"])
        sure = np.append(sure, 1)  # whether that one converged is not on record: its bar tells
    for some, marker, face in ((values >= 0, look.marker, look.color), (values < 0, NEGATIVE, f"{look.color}60")):
        for alike, inside in ((sure == 1, face), (sure != 1, "white")):
            shown = some & alike
            if shown.any():
                bars = axes.errorbar(
                    positions[shown] + shift,
                    np.abs(values[shown]),
                    doubts[shown],
                    fmt=marker,
                    color=look.color,
                    markerfacecolor=inside,
                    markeredgecolor=look.color,
                    capsize=2,
                )
                mark(bars, [run.name])
    return [
        {
            "run": run.name,
            "algorithm": run.algorithm,
            "round": int(last["round"]),
            "rank": rank,
            "eigenvalue": float(value),
            "residual": float(doubt),
            "converged": int(converged),
        }
        for rank, value, doubt, converged in zip(ranks, values, doubts, sure, strict=True)
    ]


FIGURE = Figure(
    name="spectrum",
    topic="flat",
    title="The largest eigenvalues, one by one",
    reading="Lower is flatter; a steep fall, a large λ₁/λ₅, means that one direction is much sharper than the others.",
    needs=("curvature",),
    draw=draw,
)
