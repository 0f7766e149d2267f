"""Layer by layer: how the loss answers a perturbation, what FedFSA would choose, and FedSoL's adaptive radius."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from landscape.plotting.style import join_caption, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.palette import Look
from reports.plotting.fitting import draw_shared_legend, fit_axis
from reports.plotting.measured import (
    REFERENCES,
    describe_measurement,
    describe_setting,
    find_answers,
    find_reference,
    get_data,
    select_runs,
)
from reports.quantities.measures import find_last_participants
from reports.rows import Row
from reports.variants import find_variants

PANELS = {  # title and label of the y axis
    "removal": ("perturbation sensitivity (FedFSA eq. 7)", "|change of the loss|"),
    "moved": ("movement in local training (FedFSA eq. 11)", "$||w_j - w_{g,j}||^2$"),
    "adaptive": ("adaptive radius (FedSoL)", r"mean of $|d_j| \,/\, ||d_j||$"),
}
ELSEWHERE = {  # titles where movement is not counted from the point that was sent: then it is not the papers' quantity
    "moved": "distance to the global model after the round",
    "adaptive": "relative distance to the global model after the round",
}
RANKING = "square"  # how FedFSA's paper compares movement; other comparisons are stored beside it
SPREAD = 0.7  # of the room between two layers that the runs share
MAJORITY = 0.5  # share of the participants that choose a layer, from which it is marked


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw three panels over layers: sensitivity, movement and adaptive radius."""
    measured = select_runs(runs, "sensitivity", "moved")
    if not measured:
        return []
    layers = list(dict.fromkeys(str(name) for run in measured for name in _find_last(run)["layer"].values))
    origin = find_reference(measured, "sensitivity")
    figure, axes = make_canvas(len(PANELS), 1, width=max(7.2, 0.3 * len(layers)), height=8.0)
    rows: list[Row] = []
    for panel, (name, words) in zip(axes, PANELS.items(), strict=True):
        shifts = iter(SPREAD * (np.arange(len(measured)) + 0.5) / len(measured) - SPREAD / 2)
        drawn: list[Row] = []
        for variant in find_variants(measured, everything):
            for number, run in enumerate(variant.runs):
                title = "_" if number else variant.label
                drawn += _draw_points(panel, run, name, layers, variant.look, float(next(shifts)), title)
        fit_axis(panel, "y", [row["mean"] for row in drawn])
        last = panel is axes[-1]
        panel.set_xticks(range(len(layers)), layers if last else [], rotation=35, ha="right", rotation_mode="anchor")
        panel.set_xlim(-0.6, len(layers) - 0.4)
        title = words[0] if origin == "sent" else ELSEWHERE.get(name, words[0])
        label_axes(panel, "layer, from the input to the output" if last else "", words[1], title)
        rows += drawn
    axes[0].plot([], [], "o", color="none", markeredgecolor="black", markersize=9, label="FedFSA would choose it")
    draw_shared_legend(figure, 5)
    return [Drawing(figure, rows, join_caption([*describe_setting(measured), *_describe(measured)]))]


def _find_last(run: Run) -> xr.Dataset:
    """The participants of the last round."""
    return find_last_participants(get_data(run, "sensitivity"), "loss")


def _draw_points(
    axes: Axes, run: Run, name: str, layers: Sequence[str], look: Look, shift: float, title: str
) -> list[Row]:
    """Mean over the participants of the last round with its standard error; a ring around what they would choose."""
    last = _find_last(run)
    values = last[name].transpose("client", "layer").values
    chosen = last["chosen"].sel(measure=RANKING).mean("client").values
    mean, count = values.mean(axis=0), len(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(len(mean), np.nan)
    positions = np.asarray([layers.index(str(layer)) for layer in last["layer"].values]) + shift
    bars = axes.errorbar(positions, mean, error, fmt=look.marker, color=look.color, capsize=2, label=title)
    most = chosen > MAJORITY
    rings = axes.plot(positions[most], mean[most], "o", color="none", markeredgecolor="black", markersize=9)
    mark([bars, rings], [run.name])
    return [
        {
            "run": run.name,
            "algorithm": run.algorithm,
            "measure": name,
            "layer": str(layer),
            "mean": float(mean[column]),
            "standard_error": float(error[column]),
            "participants": count,
            "share_choosing": float(chosen[column]),
        }
        for column, layer in enumerate(last["layer"].values)
    ]


def _describe(runs: Sequence[Run]) -> list[str]:
    last = [_find_last(run) for run in runs]
    rounds = sorted({int(one["round"]) for one in last})
    radii = sorted({f"{one.attrs['radius']:g}" for one in last})
    counts = sorted({int(one.attrs["layers"]) for one in last})
    return [
        f"round {', '.join(map(str, rounds))}",
        "means over participants on their own training data, bars: standard error",
        f"movement is counted from {REFERENCES[find_reference(runs, 'sensitivity')]}",
        f"perturbation of radius {' or '.join(radii)} along the gradient",
        f"ringed: among the {' or '.join(map(str, counts))} layers that most participants would choose",
        *describe_measurement(find_answers(runs, "sensitivity")),
    ]


FIGURE = Figure(
    name="sensitivity",
    topic="agree",
    title="Which layers are sensitive?",
    reading="High points are layers that the loss depends on most; rings mark those that FedFSA would perturb more. "
    "Where the rings and the high points part, movement is no good guide to sensitivity.",
    needs=("sensitivity",),
    draw=draw,
)
