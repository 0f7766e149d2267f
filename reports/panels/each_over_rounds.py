"""One thin line for each client or class over rounds, beside what all of them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes

from landscape.plotting.style import MAGNITUDE, label_axes, mark
from reports.inputs.runs import Run
from reports.panels.kind import Given, Kind, Shown
from reports.panels.loss.surface import choose_seed
from reports.plotting.fitting import use_whole_rounds
from reports.plotting.over_rounds import find_best
from reports.rows import Row


@dataclass(frozen=True)
class ClientOptions:
    """No choices: the accuracy of the global model on each client, and on the test set."""


@dataclass(frozen=True)
class ClassOptions:
    """Which classes are drawn; none: all of them."""

    classes: tuple[int, ...] = ()


def draw_clients(axes: Axes, shown: Sequence[Shown], options: ClientOptions, given: Given) -> list[Row]:
    """Draw the accuracy of a series' global model on each client, a colour each, and on the test set in black."""
    run = choose_seed(shown[:1]).get(shown[0].name) if shown else None
    found = None if run is None else _find_clients(run)
    if run is None or found is None:
        return []
    clients = found["client"].values.tolist()
    rows = []
    for place, client in enumerate(clients):
        color = colormaps[MAGNITUDE](place / max(len(clients) - 1, 1))
        rows += _draw_one(axes, run, found.sel(client=client), {"color": color}, {"client": int(client)})
    rounds, values = find_best(run, factor=100.0)
    mark(axes.plot(rounds, values, color="black", linewidth=1.8, label="test set"), [run.name])
    axes.plot([], [], color=colormaps[MAGNITUDE](0.5), linewidth=0.7, label="each client's data")
    rows += [{"client": "test set", "round": int(t), "accuracy": v} for t, v in zip(rounds, values, strict=True)]
    _finish(axes, shown[0].name)
    return [{"series": shown[0].name, **row} for row in rows]


def _find_clients(run: Run) -> xr.DataArray | None:
    """Fractions by round and client: recorded in training, or else measured afterwards; None where they are not."""
    for study in ("training", "forgetting"):
        data = run.measured(study)
        if data is not None and "client_accuracy" in data and "client" in data["client_accuracy"].dims:
            return data["client_accuracy"].dropna("client", how="all")
    return None


def _draw_one(axes: Axes, run: Run, values: xr.DataArray, look: dict[str, object], about: Row) -> list[Row]:
    """A thin line, in per cent."""
    known = values.dropna("round")
    numbers = 100.0 * known.values
    line = axes.plot(known["round"].values, numbers, linewidth=0.7, alpha=0.7, **look)  # type: ignore[arg-type]
    mark(line, [run.name])
    return [
        {**about, "round": int(t), "accuracy": float(v)} for t, v in zip(known["round"].values, numbers, strict=True)
    ]


def draw_classes(axes: Axes, shown: Sequence[Shown], options: ClassOptions, given: Given) -> list[Row]:
    """Draw the accuracy of each series' global model on each class, thin, and its mean over classes."""
    rows: list[Row] = []
    for one in shown:
        run = choose_seed([one]).get(one.name)
        data = None if run is None else run.measured("forgetting")
        if run is None or data is None or "accuracy" not in data:
            continue
        found = data["accuracy"]
        names = [name for name in found["class"].values.tolist() if not options.classes or name in options.classes]
        for name in names:
            look: dict[str, object] = {"color": one.look.color}
            about: Row = {"series": one.name, "class": int(name)}
            rows += _draw_one(axes, run, found.sel({"class": name}), look, about)
        mean = 100.0 * found.sel({"class": names}).mean("class")
        line = axes.plot(mean["round"].values, mean.values, one.look.line, color=one.look.color, linewidth=2)
        line[0].set_label(one.name)
        mark(line, [run.name])
        rows += [
            {"series": one.name, "class": "mean", "round": int(t), "accuracy": float(v)}
            for t, v in zip(mean["round"].values, mean.values, strict=True)
        ]
    _finish(axes, "")
    return rows


def _finish(axes: Axes, title: str) -> None:
    label_axes(axes, "communication round", "accuracy (%)", title)
    axes.set_ylim(-2, 102)
    use_whole_rounds(axes)


def describe(shown: Sequence[Shown], options: object, given: Given) -> list[str]:
    """Say that it is one seed."""
    return [f"seed {run.seed}" for run in list(choose_seed(shown).values())[:1]]


def describe_classes(shown: Sequence[Shown], options: ClassOptions, given: Given) -> list[str]:
    """Say what thick and thin lines are, and that it is one seed."""
    return ["thin: each class; thick: their mean", *describe(shown, options, given)]


CLIENTS = Kind(
    name="client_curves",
    shows="accuracy of the global model on each client over rounds",
    draw=draw_clients,
    options=ClientOptions,
    most=1,
    studies=lambda options: ("training",),  # recorded on the way; `forgetting` gives the same afterwards
    describe=describe,
)
CLASSES = Kind(
    name="class_curves",
    shows="accuracy of the global model on each class over rounds",
    draw=draw_classes,
    options=ClassOptions,
    studies=lambda options: ("forgetting",),
    describe=describe_classes,
)
