"""Forgetting over rounds, and what local models know of their own classes and of everyone's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from landscape.plotting.style import join_caption, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run, name_accuracy
from reports.inputs.summary import mean_known
from reports.names import name_split
from reports.plotting.fitting import draw_shared_legend, use_whole_rounds
from reports.plotting.heat import mark_empty
from reports.plotting.lines import NOTHING, Series, draw_mean_line
from reports.plotting.measured import describe_measurement, describe_setting, find_answers
from reports.plotting.series import has_numbers
from reports.rows import Row
from reports.variants import Variant, describe_seeds, find_variants

PANELS = {"forgetting": "classes", "client_forgetting": "clients"}  # variable -> what it is a mean over


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw over rounds: forgetting of classes and of clients, and the accuracy of local models."""
    measured = [run for run in runs if run.measured("forgetting") is not None]
    if not measured:
        return []
    local = [run for run in measured if has_numbers(run, "forgetting", "own_accuracy")]
    figure, axes = make_canvas(1, 3 if local else 2, width=11.0 if local else 8.0, height=3.8)
    variants = find_variants(measured, everything)
    rows: list[Row] = []
    for panel, (name, each) in zip(axes, PANELS.items(), strict=False):
        drawn = []
        for variant in variants:
            drawn += draw_mean_line(panel, variant, _make_forgetting_finder(name), f"forgetting of {each}")
        if drawn:
            mark(panel.axhline(0, color="0.6", linewidth=0.8), [run.name for run in measured])
        else:
            mark_empty(panel)
        rows += drawn
        label_axes(panel, "communication round", "forgetting (percentage points)", f"global model, mean over {each}")
    for panel in axes:
        use_whole_rounds(panel)
    if local:
        rows += _draw_local(axes[2], [variant for variant in variants if any(run in local for run in variant.runs)])
    draw_shared_legend(figure)
    stored = find_answers(measured, "forgetting")
    split, own = (stored[0].settings.get(key, key) for key in ("split", "client_split"))
    remarks = [
        "best accuracy of earlier rounds (from 1) minus accuracy now",
        f"classes: {name_split(split)} data; clients: {name_split(own)} data",
    ]
    return [
        Drawing(
            figure,
            rows,
            join_caption(
                [*describe_setting(measured), describe_seeds(variants), *remarks, *describe_measurement(stored)]
            ),
        )
    ]


def _make_forgetting_finder(name: str) -> Callable[[Run], Series]:
    def find(run: Run) -> Series:
        data = run.measured("forgetting")
        if data is None or name not in data:
            return NOTHING
        values = data[name].dropna("round")  # nothing can be forgotten in the first rounds
        return values["round"].values, 100 * values.values

    return find


def _make_round_finder(name: str) -> Callable[[Run], Series]:
    """Mean over a round's participants, in per cent."""

    def find(run: Run) -> Series:
        data = run.measured("forgetting")
        if data is None or not has_numbers(run, "forgetting", "own_accuracy"):
            return NOTHING
        with_models = data.isel(round=data["own_accuracy"].notnull().any("client"))
        return with_models["round"].values, 100 * mean_known(with_models[name].transpose("client", "round").values)

    return find


def _draw_local(axes: Axes, variants: Sequence[Variant]) -> list[Row]:
    rows: list[Row] = []
    for variant in variants:
        own, wide = _make_round_finder("own_accuracy"), _make_round_finder("local_accuracy_all")
        rows += draw_mean_line(axes, variant, own, "local models on own data", linestyle="-", label="_")
        broad = "local models on everyone's data"
        rows += draw_mean_line(axes, variant, wide, broad, markerfacecolor="white", linestyle="--", label="_")
    shown = name_accuracy(run for variant in variants for run in variant.runs)
    label_axes(axes, "communication round", f"{shown} (%)", "local models after local training")
    axes.plot([], [], "k-o", label="on own training data")
    axes.plot([], [], "k--o", markerfacecolor="white", label="on everyone's data")
    axes.set_ylim(0, 104)
    return rows


FIGURE = Figure(
    name="forgetting",
    topic="good",
    title="What is forgotten, and what local models know",
    reading="Above zero the model is worse than it was; a wide gap on the right is what clients forget of the others.",
    needs=("forgetting",),
    draw=draw,
)
