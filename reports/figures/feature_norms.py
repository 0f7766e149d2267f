"""Norms of the penultimate features by class over rounds: what enters the classifier, not what it gives."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.heat import draw_colour_bar, draw_heat, find_span, list_class_names, make_panels
from reports.plotting.measured import describe_measurement, describe_setting, find_answers
from reports.rows import Row
from reports.variants import choose_shown, describe_shown, make_titles


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a heat map of classes and rounds for each run, all in the same colours."""
    measured = [run for run in runs if _find(run) is not None]
    shown = choose_shown(measured, everything)
    named = make_titles(shown, everything)
    pairs = [(run, norms) for run in shown if (norms := _find(run)) is not None]
    limits = find_span(norms for _, norms in pairs)
    if limits is None:
        return []
    figure, panels = make_panels(len(pairs))
    rows: list[Row] = []
    for axes, (run, norms) in zip(panels, pairs, strict=True):
        cells = norms.transpose("class", "round")
        image = draw_heat(
            axes,
            cells,
            norms["round"].values,
            list_class_names(run.data, norms["class"].values, run.class_names),
            limits,
        )
        label_axes(axes, "communication round", "class", named[run.name])
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
    draw_colour_bar(figure, image, panels, "mean L2 norm of the penultimate features")
    stored = find_answers(shown, "forgetting")
    remark = f"penultimate features: what enters the last layer, {stored[0].settings.get('split', 'test')} data"
    remarks = [remark, describe_shown(shown, measured), *describe_measurement(stored)]
    return [Drawing(figure, rows, join_caption([*describe_setting(shown), *remarks]))]


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
