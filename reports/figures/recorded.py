"""What was recorded along the local steps in training: over rounds, and step by step (FedSoL, F9b)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from landscape.plotting.style import join_caption, label_axes, make_canvas
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.fitting import draw_shared_legend, fit_axis, use_whole_rounds
from reports.plotting.lines import NOTHING, Series, draw_mean_line
from reports.plotting.measured import describe_setting
from reports.plotting.over_rounds import find_recorded, list_records
from reports.rows import Row
from reports.variants import describe_seeds, find_variants

NAMES = {  # labels; other quantities have the names of recipes
    "proximal_cosine": r"$\cos(\nabla L(w + \epsilon_p), \nabla L_p(w))$",
    "proximal_norm": r"$||\nabla L_p(w)||$",
    "gradient_norm": r"$||\nabla L(w)||$",
    "delta_epsilon": r"$\delta_\epsilon$",
}


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a row of panels for each quantity: over rounds, and along the steps of the last round."""
    names = list(dict.fromkeys(name for run in runs for _, record in list_records(run) for name in record))
    known = [run for run in runs if any(list_records(run))]
    stepwise = [name for name in names if any(len(_make_step_finder(name)(run)[0]) for run in known)]
    if not any(len(find_recorded(run, name)[0]) for name in names for run in known):
        return []
    found = find_variants(known, everything)
    figure, axes = make_canvas(
        len(names), 2 if stepwise else 1, width=8.6 if stepwise else 5.2, height=2.7 * len(names)
    )
    rows: list[Row] = []
    for place, name in enumerate(names):
        across = axes[(1 + bool(stepwise)) * place :]
        some = [row for one in found for row in draw_mean_line(across[0], one, partial(find_recorded, name=name), name)]
        label, said = NAMES.get(name, name.replace("_", " ")), "mean over the local steps" if name in stepwise else ""
        label_axes(across[0], "communication round", label, said)
        use_whole_rounds(across[0])
        fit_axis(across[0], "y", [row["mean"] for row in some])
        rows += some
        if stepwise:
            more = [
                row
                for one in found
                for row in draw_mean_line(across[1], one, _make_step_finder(name), f"{name} by step", x="step")
            ]
            label_axes(across[1], "local step", label, "along the local steps of the last round")
            use_whole_rounds(across[1])
            fit_axis(across[1], "y", [row["mean"] for row in more])
            rows += more
    draw_shared_legend(figure)
    last = sorted({records[-1][0] for run in known if (records := list_records(run))})
    remarks = [
        "recorded in training, means over the participants of a round",
        f"last round: {', '.join(map(str, last))}",
        describe_seeds(found),
    ]
    return [Drawing(figure, rows, join_caption([*describe_setting(known), *remarks]))]


def _make_step_finder(name: str) -> Callable[[Run], Series]:
    """Of the last recorded round, steps counted from 1."""

    def find(run: Run) -> Series:
        records = list_records(run)
        some = records[-1][1].get(name) if records else None
        steps = some.get("by_step") if isinstance(some, Mapping) else None
        known = [
            (place, float(value))
            for place, value in enumerate(steps if isinstance(steps, list) else [], start=1)
            if isinstance(value, (int, float)) and np.isfinite(value)
        ]
        places, values = zip(*known, strict=True) if known else NOTHING
        return np.asarray(places, dtype=np.float64), np.asarray(values, dtype=np.float64)

    return find


FIGURE = Figure(
    name="recorded",
    topic="agree",
    title="Along the local steps",
    reading="A proximal cosine below zero: local steps raise the proximal loss; near zero they leave it as it is.",
    needs=(),
    draw=draw,
    wants='runs whose recipe says what to record, e.g. record = ["proximal_cosine"]',
)
