"""Maps of clients and rounds in one colour scale: sharpness of local models, norms of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from landscape.plotting.relief import make_norm
from landscape.plotting.style import label_axes, mark
from reports.inputs.runs import Run
from reports.panels.kind import Array, Given, Kind, Shown
from reports.panels.loss.surface import choose_seed
from reports.plotting.heat import draw_heat
from reports.rows import Row

MAPS = {  # what is shown -> study, variable, name of the colour bar
    "local_sharpness": ("local_global", "local_eigenvalue", r"$\lambda_1$ of $w_k$ on $D_k$"),
    "global_sharpness": ("local_global", "global_eigenvalue", r"$\lambda_1$ of $w_k$ on everyone's data"),
    "output_norm": ("forgetting", "client_output_norm", r"mean of $||f_\theta(x)||_2$ over a client's data"),
    "client_accuracy": ("forgetting", "client_accuracy", "accuracy on the client's data, a fraction"),
}


@dataclass(frozen=True)
class Options:
    """Which map is drawn.

    what: a key of MAPS.
    scale: panels with the same word share colours.
    """

    what: str = "local_sharpness"
    scale: str = ""


@dataclass(frozen=True, eq=False)
class Map:
    """Cells [client, round] of a run; NaN where a client took no part or was not measured."""

    run: Run
    clients: list[int]
    rounds: list[int]
    cells: Array


def find_map(shown: Sequence[Shown], what: str) -> Map | None:
    """Find the map of the first series, with a row for every client of the run; None where it was not measured."""
    study, variable, _ = MAPS[what]
    run = choose_seed(shown[:1]).get(shown[0].name) if shown else None
    data = None if run is None else run.measured(study)
    if run is None or data is None or variable not in data:
        return None
    values = data[variable].sel(rank=1) if "rank" in data[variable].dims else data[variable]
    values = values.dropna("round", how="all")
    most = max(int(data["client"].max()) + 1, 0 if run.class_counts is None else len(run.class_counts))
    clients, rounds = list(range(most)), [int(one) for one in values["round"].values]
    cells = values.reindex(client=clients).transpose("client", "round").values.astype(np.float64)
    return Map(run, clients, rounds, cells)


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw the map of the first series; hatched where a client took no part."""
    found = find_map(shown, options.what)
    if found is None or given.scale is None:
        return []
    norm = make_norm(given.scale)
    heights = given.scale.heights(found.cells)
    draw_heat(axes, heights, found.rounds, found.clients, (float(norm.vmin or 0.0), float(norm.vmax or 1.0)))
    label_axes(axes, "communication round", "client", shown[0].name)
    mark(axes, [found.run.name])
    return [
        {
            "series": shown[0].name,
            "measure": MAPS[options.what][1],
            "client": client,
            "round": round,
            "value": float(found.cells[row, column]),
        }
        for row, client in enumerate(found.clients)
        for column, round in enumerate(found.rounds)
    ]


def list_cells(shown: Sequence[Shown], options: Options, given: Given) -> list[Array]:
    """List the cells that share a scale."""
    found = find_map(shown, options.what)
    return [] if found is None else [found.cells]


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say what cells and hatches are."""
    found = find_map(shown, options.what)
    if found is None:
        return []
    holes = bool(np.isnan(found.cells).any())
    return ["hatched: took no part, or not measured" if holes else "", f"seed {found.run.seed}"]


KIND = Kind(
    name="heat",
    shows="a map of clients and rounds",
    draw=draw,
    options=Options,
    studies=lambda options: (MAPS[options.what][0],),
    most=1,
    values=list_cells,
    bar=lambda options: MAPS[options.what][2],
    describe=describe,
    size=(3.2, 2.9),
)
