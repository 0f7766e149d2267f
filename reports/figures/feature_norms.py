"""Norms of the penultimate features by class over rounds: what enters the classifier, not what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.store import Table
from reports.figure import Drawn, Figure
from reports.plotting.heat import colour_bar, heat, panels, span
from reports.plotting.measured import measured, of_study, setting
from reports.plotting.style import caption, label, mark
from reports.runs import Collection, Run
from reports.variants import ordered, titles


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    named = titles(runs, everything)
    found = [(run, table) for run in ordered(runs, named) if (table := _table(run)) is not None]
    limits = span(table["feature_norm"] for _, table in found)
    if limits is None:
        return []
    figure, places = panels(len(found))
    rows: list[dict[str, Any]] = []
    for axes, (run, table) in zip(places, found, strict=True):
        image = heat(axes, table["feature_norm"].T, table["round"], table["class"], limits)
        label(axes, "communication round", "class", named[run.name])
        mark(axes, [run.name])
        rows += [
            {
                "run": run.name,
                "algorithm": run.algorithm,
                "round": int(round),
                "class": int(name),
                "feature_norm": table["feature_norm"][i, j],
            }
            for i, round in enumerate(table["round"])
            for j, name in enumerate(table["class"])
        ]
    colour_bar(figure, image, places, "mean L2 norm of the penultimate features")
    stored = of_study([run for run, _ in found], "forgetting")
    said = f"penultimate features: what enters the last layer, {stored[0].settings.get('split', 'test')} data"
    return [Drawn(figure, rows, caption([*setting(runs), said, *measured(stored)]))]


def _table(run: Run) -> Table | None:
    table = run.table("forgetting", "global_model")
    return table if table is not None and "feature_norm" in table.variables else None


FIGURE = Figure(
    name="feature_norms",
    topic="good",
    title="Norms of the penultimate features, class by class",
    reading="Even columns: all classes excite the last layer's input alike; single bright rows are classes that "
    "dominate. The papers' norms of outputs on clients' data are another figure.",
    needs=("forgetting",),
    draw=draw,
)
