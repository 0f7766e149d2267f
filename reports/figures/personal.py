"""How well every client is served: by the global model, and by models made for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from reports.figure import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.measures import list_personal_strategies
from reports.palette import Look
from reports.plotting.fitting import select_finite
from reports.plotting.heat import make_panels, mark_empty
from reports.plotting.measured import describe_measurement, describe_setting, find_answers
from reports.plotting.style import join_caption, label_axes, mark
from reports.rows import Row, list_numbers
from reports.variants import find_variants, make_titles

GLOBAL = "global model"
WIDEST = 12.0  # inches of all panels in a row
WIDE = 0.3  # how far clients' dots spread to each side


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a panel for the global model, then one for each strategy."""
    known = [run for run in runs if run.personal]
    if not known:
        return []
    found = [(run, variant.look) for variant in find_variants(known, everything) for run in variant.runs]
    strategies = list_personal_strategies(known)
    width = max(2.6, 0.75 * len(found))
    named = {name: title.replace(" (", "\n(") for name, title in make_titles(known, everything).items()}
    height = 3.8 + 0.05 * max(len(line) for title in named.values() for line in title.split("\n"))
    figure, places = make_panels(
        1 + len(strategies), columns=max(1, min(3, int(WIDEST / width))), width=width, height=height
    )
    rows: list[Row] = []
    for axes, strategy in zip(places, (GLOBAL, *strategies), strict=True):
        drawn = []
        for place, (run, look) in enumerate(found):
            drawn += _draw_column(axes, place, run, look, strategy)
        if not drawn:
            mark_empty(axes)
        rows += drawn
        axes.set_xticks(range(len(found)), [named[run.name] for run, _ in found], rotation=30, ha="right")
        axes.set_xlim(-0.6, len(found) - 0.4)
        axes.grid(False, axis="x")
        label_axes(axes, "method", "accuracy on a client's test data (%)", strategy)
    low = min(100 * select_finite(list_numbers(rows, "accuracy")), default=0.0)
    for axes in places:
        axes.set_ylim(max(low - 8, -4), 104)
    return [Drawing(figure, rows, join_caption([*describe_setting(known), *_describe(known)]))]


def _describe(runs: Sequence[Run]) -> list[str]:
    scores = [one for run in runs for one in run.personal]
    clients, rounds = sorted({len(one.client) for one in scores}), sorted({one.round for one in scores})
    return [
        f"{' or '.join(map(str, clients))} clients",
        "dots: clients; line and bar: their mean and standard deviation over clients",
        f"round {', '.join(map(str, rounds))}",
        *describe_measurement(find_answers(runs, "personal")),
    ]


def _draw_column(axes: Axes, place: int, run: Run, look: Look, strategy: str) -> list[Row]:
    """Clients side by side in a fixed order, so that one can be followed from panel to panel."""
    found = next((one for one in run.personal if strategy in (GLOBAL, one.name)), None)
    if found is None:
        return []
    values = found.before if strategy == GLOBAL else found.after
    there = np.isfinite(values)
    if not there.any():
        return []
    x = place + np.linspace(-WIDE, WIDE, len(values)) if len(values) > 1 else np.asarray([float(place)])
    mean, spread = float(values[there].mean()), float(values[there].std())
    mark(axes.plot(x[there], 100 * values[there], look.marker, color=look.color, markersize=3, alpha=0.6), [run.name])
    bar = axes.errorbar([place], [100 * mean], yerr=[100 * spread], fmt="none", ecolor="0.2", capsize=3, linewidth=1)
    line = axes.plot([place - WIDE, place + WIDE], [100 * mean] * 2, "-", color="0.2")
    mark([bar.get_children(), line], [run.name])
    about: Row = {"run": run.name, "algorithm": run.algorithm, "strategy": strategy, "round": found.round}
    about |= {"mean_over_clients": mean, "spread_over_clients": spread}
    return [
        {**about, "client": int(client), "accuracy": value} for client, value in zip(found.client, values, strict=True)
    ]


FIGURE = Figure(
    name="personal",
    topic="good",
    title="Accuracy for each client, before and after personalisation",
    reading="A high line with a short bar serves everyone well; dots far below the line are clients left behind.",
    needs=("personal",),
    draw=draw,
)
