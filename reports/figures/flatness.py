"""Do flat models do better: accuracy against each measure of flatness over all runs, with the rank correlation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.typing import FillStyleType
from numpy.typing import NDArray

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run, label_score, name_score
from reports.palette import Look, assign_looks
from reports.plotting.fitting import fit_axis
from reports.plotting.heat import make_panels
from reports.plotting.measured import describe_measurement
from reports.quantities.measures import MEASURES, Measure, find_final_accuracy
from reports.rows import Row

CHOSEN = ("lambda_1", "everyone", "trace", "sam", "incompatibility")
FILLS: tuple[FillStyleType, ...] = ("full", "none", "left", "right", "top", "bottom")  # of markers, one per partition
STUDIES = ("curvature", "incompatibility", "local_global", "sharpness")
FEWEST = 5  # runs, for a rank correlation


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a panel for each measure of flatness, a point for each run."""
    points = {name: _find_points(runs, MEASURES[name]) for name in CHOSEN}
    points = {name: triples for name, triples in points.items() if len(triples) > 1}
    if not points:
        return []
    figure, panels = make_panels(len(points), columns=2 if len(points) in (2, 4) else 3, width=3.4, height=3.0)
    chosen = assign_looks(run.algorithm for run in everything.runs)
    partitions = list(dict.fromkeys(run.heterogeneity for run in runs))
    fills = {partition: FILLS[number % len(FILLS)] for number, partition in enumerate(partitions)}
    rows: list[Row] = []
    for axes, (name, triples) in zip(panels, points.items(), strict=True):
        rows += _draw_panel(axes, MEASURES[name], triples, chosen, fills)
    _draw_legend(figure, chosen, {run.algorithm: run.method for run in everything.runs}, fills)
    answers = [answer for run in runs for study in STUDIES if (answer := run.answer(study)) is not None]
    remarks = [
        f"{name_score(runs)} of the same global model whose flatness was measured, mean over the last evaluated rounds",
        "flatness at the last round that was looked at",
        "Spearman's r: rank correlation, ranks counted within each partition",
        "diverged runs are left out" if any(run.progress.state == "diverged" for run in runs) else "",
        *describe_measurement(answers)[:1],
    ]
    return [Drawing(figure, rows, join_caption([runs[0].data_name, f"{len(runs)} runs", *remarks]))]


def _find_points(runs: Sequence[Run], measure: Measure) -> list[tuple[Run, float, float]]:
    """Runs with both numbers: flatness, and accuracy in per cent of the same global model."""
    shown = [run for run in runs if run.progress.state != "diverged"]
    points = [(run, measure.find(run), find_final_accuracy(run, _find_model(run, measure))) for run in shown]
    return [(run, x, y) for run, x, y in points if np.isfinite(x) and np.isfinite(y)]


def _find_model(run: Run, measure: Measure) -> str:
    """Which global model a study looked at: studies without the choice look at the server's."""
    studies = {"lambda_1": "curvature", "trace": "curvature"}
    answer = run.answer(studies.get(measure.name, ""))
    return str(answer.settings.get("model", "server")) if answer is not None else "server"


def _draw_panel(
    axes: Axes,
    measure: Measure,
    points: Sequence[tuple[Run, float, float]],
    chosen: dict[str, Look],
    fills: dict[str, FillStyleType],
) -> list[Row]:
    x, y = np.asarray([one[1] for one in points]), np.asarray([one[2] for one in points])
    for run, across, up in points:
        look = chosen[run.algorithm]
        (point,) = axes.plot([across], [up], look.marker, color=look.color, markersize=7)
        point.set_fillstyle(fills[run.heterogeneity])
        mark(point, [run.name])
    correlation, chance = _correlate(x, y, [run.heterogeneity for run, _, _ in points])
    title = f"Spearman's r = {correlation:.2f}, p = {chance:.2g}, n = {len(points)}"
    axes.set_title(
        title if np.isfinite(correlation) else f"n = {len(points)}: correlation not computed", fontsize=9, y=1.0
    )
    fit_axis(axes, "x", x)
    label_axes(axes, measure.label, label_score(run for run, _, _ in points))
    about: Row = {"measure": measure.name, "spearman": correlation, "p": chance}
    return [
        {
            "run": run.name,
            "algorithm": run.algorithm,
            "partition": run.heterogeneity,
            "seed": run.seed,
            "flatness": across,
            run.score: up,
            **about,
        }
        for run, across, up in points
    ]


def _correlate(x: NDArray[np.float64], y: NDArray[np.float64], groups: Sequence[str]) -> tuple[float, float]:
    """Rank correlation and its two-sided p-value; NaN where there are too few points, or all are equal.

    groups: the partition of each point. Ranks are counted, and their means taken off, within each: across partitions
    accuracy and flatness differ for other reasons, and pooling could turn the sign (Simpson's paradox).
    """
    from scipy.stats import rankdata, t  # here, because it takes a second to import

    ranks = np.zeros((2, len(x)))
    names = np.asarray(groups)
    for name in dict.fromkeys(groups):
        own = names == name
        for row, values in enumerate((x, y)):
            found = rankdata(values[own])
            ranks[row, own] = found - found.mean()
    left = len(x) - len(set(groups)) - 1  # degrees of freedom
    sizes = np.linalg.norm(ranks, axis=1)
    if len(x) < FEWEST or left < 1 or not sizes.all():
        return np.nan, np.nan
    r = float(np.clip(ranks[0] @ ranks[1] / (sizes[0] * sizes[1]), -1, 1))
    chance = 0.0 if abs(r) == 1 else 2 * float(t.sf(abs(r) * np.sqrt(left / (1 - r**2)), left))
    return r, chance


def _draw_legend(
    figure: Canvas, chosen: dict[str, Look], named: dict[str, str], fills: dict[str, FillStyleType]
) -> None:
    """Methods by colour and shape, partitions by fill."""
    axes = figure.axes[0]
    handles = [axes.plot([], [], look.marker, color=look.color, label=named[key])[0] for key, look in chosen.items()]
    if len(fills) > 1:
        handles += [axes.plot([], [], "ko", fillstyle=fill, label=name)[0] for name, fill in fills.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)


FIGURE = Figure(
    name="flatness",
    topic="flat",
    title="Accuracy against flatness, over all runs",
    reading="Points that fall to the right speak for flatness; compare those of one partition (same fill) first.",
    needs=("curvature",),
    draw=draw,
    wants="several runs",
    across=True,
)
