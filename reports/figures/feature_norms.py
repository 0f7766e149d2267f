"""Norms of the penultimate features by class over rounds: what enters the classifier, not what it gives."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr

from reports.figure import Drawn, Figure
from reports.plotting.heat import colour_bar, heat, panels, span
from reports.plotting.measured import measured, of_study, setting
from reports.plotting.style import caption, label, mark
from reports.rows import Row
from reports.runs import Collection, Run
from reports.variants import ordered, titles


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    """A heat map of classes and rounds for each run, all in the same colours."""
    named = titles(runs, everything)
    found = [(run, norms) for run in ordered(runs, named) if (norms := _find(run)) is not None]
    limits = span(norms for _, norms in found)
    if limits is None:
        return []
    figure, places = panels(len(found))
    rows: list[Row] = []
    for axes, (run, norms) in zip(places, found, strict=True):
        cells = norms.transpose("class", "round")
        image = heat(axes, cells, norms["round"].values, norms["class"].values, limits)
        label(axes, "communication round", "class", named[run.name])
        mark(axes, [run.name])
        rows += [
            {
                "run": run.name,
                "algorithm": run.algorithm,
                "round": int(round),
                "class": int(name),
                "feature_norm": float(norms.sel({"round": round, "class": name})),
            }
            for round in norms["round"].values
            for name in norms["class"].values
        ]
    colour_bar(figure, image, places, "mean L2 norm of the penultimate features")
    stored = of_study([run for run, _ in found], "forgetting")
    said = f"penultimate features: what enters the last layer, {stored[0].settings.get('split', 'test')} data"
    return [Drawn(figure, rows, caption([*setting(runs), said, *measured(stored)]))]


def _find(run: Run) -> xr.DataArray | None:
    data = run.measured("forgetting")
    return data["feature_norm"] if data is not None and "feature_norm" in data else None


FIGURE = Figure(
    name="feature_norms",
    topic="good",
    title="Norms of the penultimate features, class by class",
    reading="Even columns: all classes excite the last layer's input alike; single bright rows are classes that "
    "dominate. The papers' norms of outputs on clients' data are another figure.",
    needs=("forgetting",),
    draw=draw,
)
