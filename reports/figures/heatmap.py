"""Clients x rounds: the largest eigenvalue of every local model on its own data, and beside it on everyone's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from numpy.typing import NDArray

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.fitting import select_finite, spans_decades
from reports.plotting.heat import draw_colour_bar, draw_heat, make_panels
from reports.plotting.measured import describe_measurement, describe_setting, find_answers, get_data, select_runs
from reports.rows import Row
from reports.variants import choose_shown, describe_shown, make_titles

SIDES = {"local": "own data", "global": "everyone's data"}
FEW = 4  # runs that get a row each; of more, two share a row
MOST = 40  # clients with a row each, whether they took part or not


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw two heat maps of clients and rounds for each run: own data, and everyone's."""
    measured = select_runs(runs, "local_global", "local_eigenvalue")
    ordered = choose_shown(measured, everything)
    rounds = sorted({one for run in ordered for one in _with_participants(run, "round")})
    if len(rounds) < 2:  # one round alone is what the dumbbells show
        return []
    clients, complete = _choose_clients(ordered)
    maps = {(run.name, side): _fill_cells(run, side, clients, rounds) for run in ordered for side in SIDES}
    norm, below = _make_norm(maps.values())
    height = max(1.8, min(2.4, 0.6 + 0.16 * len(clients)))
    figure, axes = make_panels(2 * len(ordered), columns=2 if len(ordered) <= FEW else 4, width=3.4, height=height)
    names, rows = make_titles(ordered, everything), list[Row]()
    for panel, (run, side) in zip(axes, ((run, side) for run in ordered for side in SIDES), strict=True):
        cells = maps[run.name, side]
        image = draw_heat(panel, np.clip(cells, norm.vmin, norm.vmax), rounds, clients, (0.0, 1.0))
        image.set_norm(norm)
        label_axes(panel, "communication round", "client", f"{names[run.name]}: {SIDES[side]}")
        mark(panel, [run.name])
        rows += _list_rows(run, side, clients, rounds, cells)
    draw_colour_bar(figure, image, axes, "largest eigenvalue", extend="min" if below else "neither")
    remarks = [
        "each participant's model of a round",
        "hatched: took no part, or not measured",
        "" if complete else "clients that never took part are left out",
        "largest eigenvalue of the training loss",
        f"not positive ones as {norm.vmin:.2g}" if below else "",
        describe_shown(ordered, measured),
    ]
    measurement = describe_measurement(find_answers(ordered, "local_global"))
    return [Drawing(figure, rows, join_caption([*describe_setting(ordered), *remarks, *measurement]))]


def _choose_clients(runs: Sequence[Run]) -> tuple[list[int], bool]:
    """The clients that get a row, and whether these are all: a gap for each absent one, unless there are too many."""
    clients = sorted({one for run in runs for one in _with_participants(run, "client")})
    everyone = list(range(clients[-1] + 1))
    return (everyone, True) if len(everyone) <= MOST else (clients, clients == everyone)


def _list_rows(
    run: Run, side: str, clients: Sequence[int], rounds: Sequence[int], cells: NDArray[np.float64]
) -> list[Row]:
    about = {"run": run.name, "algorithm": run.algorithm, "data": SIDES[side]}
    return [
        {**about, "client": client, "round": round, "lambda_1": float(cells[row, column])}
        for row, client in enumerate(clients)
        for column, round in enumerate(rounds)
    ]


def _with_participants(run: Run, dim: str) -> list[int]:
    """The rounds in which somebody took part, or the clients that ever did."""
    took_part = get_data(run, "local_global")["distance"].notnull()
    values: list[int] = took_part[dim][took_part.any({"round": "client", "client": "round"}[dim])].values.tolist()
    return values


def _fill_cells(run: Run, side: str, clients: Sequence[int], rounds: Sequence[int]) -> NDArray[np.float64]:
    """(client, round), NaN where the client took no part."""
    largest = get_data(run, "local_global")[f"{side}_eigenvalue"].sel(rank=1)
    cells: NDArray[np.float64] = largest.reindex(client=clients, round=rounds).transpose("client", "round").values
    return cells


def _make_norm(maps: Iterable[NDArray[np.float64]]) -> tuple[Normalize, bool]:
    """One colour scale for all panels, and whether something lies below it."""
    values = select_finite(np.stack(list(maps)))
    positive = values[values > 0]
    if len(positive) and spans_decades(positive):
        return LogNorm(positive.min(), positive.max()), len(positive) < len(values)
    return Normalize(*((values.min(), values.max()) if len(values) else (0.0, 1.0))), False


FIGURE = Figure(
    name="heatmap",
    topic="agree",
    title="Sharpness of local models over clients and rounds",
    reading="Dark on the left, bright on the right: models that are flat for their own client and sharp for everyone.",
    needs=("local_global",),
    draw=draw,
    wants="--set local_global.rounds=all",
)
