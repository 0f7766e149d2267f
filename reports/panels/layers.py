"""Layer by layer: FedSoL's adaptive radius, or how far layers move, mean over the participants of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from landscape.plotting.style import label_axes, mark
from reports.inputs.runs import Run
from reports.panels.bars import style_bars
from reports.panels.features import find_round
from reports.panels.kind import Given, Kind, Shown
from reports.panels.loss.surface import choose_seed
from reports.plotting.fitting import fit_axis
from reports.plotting.measured import REFERENCES, find_reference
from reports.rows import Row, list_numbers

LABELS = {"adaptive": r"adaptive radius $\Lambda$, mean", "moved": "$||w_j - w_{g,j}||^2$", "removal": "change of loss"}
WIDE = 0.8  # share of a layer's room that its bars take


@dataclass(frozen=True)
class Options:
    """What is drawn.

    variable: of the study `sensitivity`.
    joined: whether the tensors of a layer, such as weight and bias, are one: a mean over all its entries.
    at: share of the run's rounds; the nearest measured round with participants is drawn and named.
    label: of the y axis.
    """

    variable: str = "adaptive"
    joined: bool = False
    at: float = 1.0
    label: str = ""


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw a bar for each layer and series, with its standard error over participants."""
    found = [(one, run, last) for one, run in _list_runs(shown) if (last := _find(run, options)) is not None]
    layers = list(dict.fromkeys(str(name) for *_, last in found for name in last["layer"].values))
    rows: list[Row] = []
    for number, (one, run, last) in enumerate(found):
        shift = WIDE * ((number + 0.5) / len(found) - 0.5)
        rows += _draw_bars(axes, one, run, last, (layers, shift, WIDE / len(found)), options)
    axes.set_xticks(range(len(layers)), layers, rotation=35, ha="right", rotation_mode="anchor", fontsize=7)
    axes.grid(False, axis="x")
    label_axes(axes, "layer, from the input to the output", options.label or LABELS.get(options.variable, ""))
    if rows and all(value >= 0 for value in list_numbers(rows, "mean")):
        axes.set_ylim(bottom=0)
    elif rows:
        fit_axis(axes, "y", list_numbers(rows, "mean"))
    return rows


def _list_runs(shown: Sequence[Shown]) -> list[tuple[Shown, Run]]:
    chosen = choose_seed(shown)
    return [(one, chosen[one.name]) for one in shown if one.name in chosen]


def _find(run: Run, options: Options) -> xr.Dataset | None:
    """The participants of the round that is drawn; None where none was measured."""
    data = run.measured("sensitivity")
    if data is None or options.variable not in data:
        return None
    took_part = data[options.variable].notnull().any("layer")
    data = data.isel(round=np.flatnonzero(took_part.any("client")))
    if not data.sizes["round"]:
        return None
    one = data.isel(round=find_round(data, run, options.at))
    one = one.isel(client=np.flatnonzero(one[options.variable].notnull().any("layer")))
    return _join_tensors(one, options.variable) if options.joined else one


def _join_tensors(data: xr.Dataset, name: str) -> xr.Dataset:
    """The mean over all entries of a layer, from the means over those of its tensors; in the order of the network."""
    owners = [str(tensor).rpartition(".")[0] or str(tensor) for tensor in data["layer"].values]
    parts = {}
    for layer in dict.fromkeys(owners):
        own = data.isel(layer=[place for place, owner in enumerate(owners) if owner == layer])
        parts[layer] = (own[name] * own["entries"]).sum("layer", skipna=False) / own["entries"].sum()
    joined = xr.concat(parts.values(), xr.Variable("layer", list(parts)), coords="minimal", compat="override")
    return xr.Dataset({name: joined}, {"round": data["round"]})


def _draw_bars(
    axes: Axes,
    one: Shown,
    run: Run,
    last: xr.Dataset,
    place: tuple[Sequence[str], float, float],
    options: Options,
) -> list[Row]:
    layers, shift, width = place
    values = last[options.variable].transpose("client", "layer").values
    mean, count = values.mean(axis=0), len(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(len(mean), np.nan)
    x = np.asarray([layers.index(str(layer)) for layer in last["layer"].values]) + shift
    bars = axes.bar(x, mean, 0.92 * width, label=one.name)
    style_bars(bars.patches, one)
    doubt = axes.errorbar(x, mean, np.nan_to_num(error), fmt="none", ecolor="0.2", capsize=2)
    mark([*bars.patches, *doubt.get_children()], [run.name])
    about: Row = {"series": one.name, "measure": options.variable, "round": int(last["round"]), "participants": count}
    return [
        {**about, "layer": str(layer), "mean": float(mean[number]), "standard_error": float(error[number])}
        for number, layer in enumerate(last["layer"].values)
    ]


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say which round it is, and from which point movement is counted."""
    found = [(run, last) for _, run in _list_runs(shown) if (last := _find(run, options)) is not None]
    if not found:
        return []
    rounds = sorted({int(last["round"]) for _, last in found})
    return [
        f"round {', '.join(map(str, rounds))}, mean over participants, bars: standard error",
        f"movement is counted from {REFERENCES[find_reference([run for run, _ in found], 'sensitivity')]}",
    ]


KIND = Kind(
    name="layers",
    shows="a number for each layer",
    draw=draw,
    options=Options,
    studies=lambda options: ("sensitivity",),
    describe=describe,
)
