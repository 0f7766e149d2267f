"""How well every client is served: by the global model, and by models made for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.names import name_strategy
from reports.palette import Look
from reports.plotting.fitting import select_finite
from reports.plotting.heat import make_panels, mark_empty
from reports.plotting.measured import describe_measurement, describe_setting, find_answers
from reports.quantities.measures import list_personal_strategies
from reports.rows import Row, list_numbers
from reports.variants import find_variants, make_titles

GLOBAL = "global model"
WIDEST = 12.0  # inches of all panels in a row
WIDE = 0.3  # how far clients' dots spread to each side


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a panel for the global model, then one for each strategy."""
    tested = [run for run in runs if run.personal]
    if not tested:
        return []
    columns = [(run, variant.look) for variant in find_variants(tested, everything) for run in variant.runs]
    strategies = list_personal_strategies(tested)
    width = max(2.6, 0.75 * len(columns))
    named = {name: title.replace(" (", "\n(") for name, title in make_titles(tested, everything).items()}
    height = 3.8 + 0.05 * max(len(line) for title in named.values() for line in title.split("\n"))
    figure, panels = make_panels(
        1 + len(strategies), columns=max(1, min(3, int(WIDEST / width))), width=width, height=height
    )
    rows: list[Row] = []
    for axes, strategy in zip(panels, (GLOBAL, *strategies), strict=True):
        drawn = []
        for column, (run, look) in enumerate(columns):
            drawn += _draw_column(axes, column, run, look, strategy)
        if not drawn:
            mark_empty(axes)
        rows += drawn
        axes.set_xticks(range(len(columns)), [named[run.name] for run, _ in columns], rotation=30, ha="right")
        axes.set_xlim(-0.6, len(columns) - 0.4)
        axes.grid(False, axis="x")
        label_axes(axes, "method", "accuracy on a client's test data (%)", name_strategy(strategy))
    low = min(100 * select_finite(list_numbers(rows, "accuracy")), default=0.0)
    for axes in panels:
        axes.set_ylim(max(low - 8, -4), 104)
    return [Drawing(figure, rows, join_caption([*describe_setting(tested), *_describe(tested)]))]


def _describe(runs: Sequence[Run]) -> list[str]:
    scores = [one for run in runs for one in run.personal]
    clients, rounds = sorted({len(one.client) for one in scores}), sorted({one.round for one in scores})
    return [
        f"{' or '.join(map(str, clients))} clients",
        "dots: clients; line and bar: their mean and standard deviation over clients",
        f"round {', '.join(map(str, rounds))}",
        *describe_measurement(find_answers(runs, "personal")),
    ]


def _draw_column(axes: Axes, column: int, run: Run, look: Look, strategy: str) -> list[Row]:
    """Clients side by side in a fixed order, so that one can be followed from panel to panel."""
    scores = next((one for one in run.personal if strategy in (GLOBAL, one.name)), None)
    if scores is None:
        return []
    values = scores.before if strategy == GLOBAL else scores.after
    finite = np.isfinite(values)
    if not finite.any():
        return []
    x = column + np.linspace(-WIDE, WIDE, len(values)) if len(values) > 1 else np.asarray([float(column)])
    mean, spread = float(values[finite].mean()), float(values[finite].std())
    mark(axes.plot(x[finite], 100 * values[finite], look.marker, color=look.color, markersize=3, alpha=0.6), [run.name])
    bar = axes.errorbar([column], [100 * mean], yerr=[100 * spread], fmt="none", ecolor="0.2", capsize=3, linewidth=1)
    line = axes.plot([column - WIDE, column + WIDE], [100 * mean] * 2, "-", color="0.2")
    mark([bar.get_children(), line], [run.name])
    about: Row = {"run": run.name, "algorithm": run.algorithm, "strategy": strategy, "round": scores.round}
    about |= {"mean_over_clients": mean, "spread_over_clients": spread}
    return [
        {**about, "client": int(client), "accuracy": value} for client, value in zip(scores.client, values, strict=True)
    ]


FIGURE = Figure(
    name="personal",
    topic="good",
    title="Accuracy for each client, before and after personalisation",
    reading="A high line with a short bar serves everyone well; dots far below the line are clients left behind.",
    needs=("personal",),
    draw=draw,
)
