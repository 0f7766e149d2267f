"""What accuracy costs: accuracy against bytes sent, and rounds and bytes until targets are reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from matplotlib.axes import Axes

from landscape.plotting.style import join_caption, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run, name_score
from reports.inputs.summary import mean_known
from reports.plotting.fitting import draw_shared_legend
from reports.plotting.lines import NOTHING, Series, draw_mean_line
from reports.plotting.over_rounds import find_best
from reports.quantities.measures import find_target_cost, list_targets
from reports.rows import Row
from reports.variants import Variant, describe_seeds, find_variants

MEGA = 1e6
COUNTED = "first evaluated round in which the server's model, or its SWA average, is as good as the target"
PANELS = (("rounds", "rounds until then"), ("megabytes", "megabytes sent until then"))


@dataclass(frozen=True)
class Cost:
    """Rounds or megabytes that the seeds of a method took to reach a target accuracy.

    target: the accuracy, as a fraction.
    mean, lowest, highest: over the seeds that reached it; NaN where none did.
    seeds, never: how many seeds there are, and how many never reached it.
    """

    target: float
    mean: float
    lowest: float
    highest: float
    seeds: int
    never: int


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw accuracy over bytes, then rounds and bytes until each target, if any run reached one."""
    measured = [run for run in runs if run.measured("training") is not None]
    wanted = list_targets(measured)
    if not measured:
        return []
    found = find_variants(measured, everything)
    reached = any(np.isfinite(_find_cost(one, target, "rounds").mean) for one in found for target in wanted)
    panels = PANELS if reached else ()
    figure, (left, *others) = make_canvas(1, 1 + len(panels), width=11.0 if panels else 4.5, height=3.8)
    rows: list[Row] = []
    score = name_score(measured)
    for variant in found:
        rows += draw_mean_line(left, variant, _find_score_by_bytes, score, x="megabytes")
    label_axes(left, "megabytes sent, down and up", f"test {score} (%)")
    for axes, (name, words) in zip(others, panels, strict=True):
        rows += _draw_costs(axes, found, wanted, name)
        label_axes(axes, f"target {score} (%)", words)
    draw_shared_legend(figure)
    said = [measured[0].data, measured[0].heterogeneity, describe_seeds(found) or f"seed {measured[0].seed}"]
    said += [COUNTED, "crosses at the top: never within the run"] if panels else [f"no run reached a target {score}"]
    return [Drawing(figure, rows, join_caption(said))]


def _find_score_by_bytes(run: Run) -> Series:
    """Accuracy, or mean IoU, in per cent at the megabytes that were sent until each round."""
    data = run.measured("training")
    if data is None:
        return NOTHING
    total = (data["bytes_down_so_far"] + data["bytes_up_so_far"]) / MEGA
    sent = dict(zip(total["round"].values, total.values, strict=True))
    known = [(sent[round], value) for round, value in zip(*find_best(run, factor=100.0), strict=True) if round in sent]
    places, values = zip(*known, strict=True) if known else ((), ())
    return np.asarray(places), np.asarray(values)


def _draw_costs(axes: Axes, found: Sequence[Variant], wanted: Sequence[float], name: str) -> list[Row]:
    """A point for every method and target, side by side; a cross above all of them for runs that never get there."""
    costs = {variant: [_find_cost(variant, target, name) for target in wanted] for variant in found}
    known = [cost.highest for some in costs.values() for cost in some if np.isfinite(cost.highest)]
    top = 1.12 * max(known, default=1.0)
    for place, variant in enumerate(found):
        shift = 0.7 * ((place + 0.5) / len(found) - 0.5)
        for column, cost in enumerate(costs[variant]):
            _draw_cost(axes, variant, cost, column + shift, top)
    axes.axhline(top / 1.06, color="0.7", linewidth=0.8)
    axes.text(0.01, top, "never", transform=axes.get_yaxis_transform(), va="center", fontsize=8, color="0.4")
    axes.set_ylim(0, 1.06 * top)
    axes.set_xlim(-1.2, len(wanted) - 0.5)  # "never" has its place left of the first target
    axes.set_xticks(range(len(wanted)), [f"{100 * target:g}" for target in wanted])
    axes.grid(False, axis="x")
    return [
        {"algorithm": variant.label, "metric": f"{name} to target", **asdict(cost)}
        for variant in found
        for cost in costs[variant]
    ]


def _find_cost(variant: Variant, target: float, name: str) -> Cost:
    values = np.asarray([find_target_cost(run, target) for run in variant.shown])[:, 0 if name == "rounds" else 1]
    values = values if name == "rounds" else values / MEGA
    reached = values[np.isfinite(values)]
    return Cost(
        target=target,
        mean=float(mean_known(values)),
        lowest=float(reached.min()) if len(reached) else np.nan,
        highest=float(reached.max()) if len(reached) else np.nan,
        seeds=len(values),
        never=len(values) - len(reached),
    )


def _draw_cost(axes: Axes, variant: Variant, cost: Cost, x: float, top: float) -> None:
    look = variant.look
    if np.isfinite(cost.mean):
        if cost.highest > cost.lowest:
            mark(axes.plot([x, x], [cost.lowest, cost.highest], "-", color=look.color), variant.names)
        mark(axes.plot([x], [cost.mean], look.marker, color=look.color), variant.names)
    if cost.never:
        mark(axes.plot([x], [top], "x", color=look.color), variant.names)
        if cost.never < cost.seeds:
            said = f"{cost.never} of {cost.seeds}"
            mark(axes.text(x, top, said, fontsize=6, va="bottom", ha="center", color=look.color), variant.names)


FIGURE = Figure(
    name="communication",
    topic="good",
    title="What accuracy costs in rounds and bytes",
    reading="Further left and lower is cheaper; a cross at the top is a target that was never reached.",
    needs=("training",),
    draw=draw,
)
