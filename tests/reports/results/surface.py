"""What the study `surface` stores, made up: planes in x and y, so that every contour line is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.store import Stored, Table, Variable

X, Y = np.linspace(-1.0, 1.0, 5), np.linspace(-0.5, 0.5, 5)
SHAPES = {"run_a": (1.0, 1.0), "run_b": (10.0, 1.0), "run_c": (0.1, -1.0)}  # factor, and slope along x
HOLED = "run_c"  # one cell of it is missing, one is infinite


def loss_of(name: str, shapes: Mapping[str, tuple[float, float]] = SHAPES) -> np.ndarray:
    """Training loss [x, y] of a run's last round."""
    factor, slope = shapes.get(name, (1.0, 1.0))
    loss = factor * (4 + slope * X[:, None] + 3 * Y[None, :])
    if name == HOLED:
        loss[0, 0], loss[-1, -1] = np.nan, np.inf
    return loss


def stored(
    runs: Sequence[str],
    *,
    rounds: Sequence[int] = (10,),
    clients: int = 2,
    axes: str = "random",
    shapes: Mapping[str, tuple[float, float]] = SHAPES,
) -> Stored:
    places = [(name, round) for name in runs for round in rounds]
    losses = np.stack([[loss_of(name, shapes) * 10 / round + more for more in (0.0, 0.5)] for name, round in places])
    tables = {"global_models": _table(places, losses, ("split", ["train", "test"], [100, 40]), axes)}
    if clients:
        local = [(name, round) for name, round in places for _ in range(clients)]
        who = np.tile(np.arange(clients), len(places))
        each = np.stack(
            [
                [loss_of(name, shapes) * (k + 1) * f for f in (0.01, 1.0)]
                for (name, _), k in zip(local, who, strict=True)
            ]
        )
        table = _table(local, each, ("data", ["own", "everyone"], [20, 100]), axes)
        client = Variable(("row",), who, "participant")
        tables["local_models"] = Table({**table.variables, "client": client}, table.attributes)
    settings = {"model": "server", "axes": axes, "clients": clients, "splits": ["train", "test"], "limit": None}
    return Stored("surface", settings, {"subjects": list(runs), "seed": [0] * len(runs)}, tables)


def _table(
    places: Sequence[tuple[str, int]], losses: np.ndarray, views: tuple[str, list[str], list[int]], axes: str
) -> Table:
    dim, names, counts = views
    rows, unit = len(places), "weight distance" if axes == "eigen" else "1"
    grid = ("row", dim, "x", "y")
    variables = {
        "run": Variable(("row",), np.asarray([name for name, _ in places]), "run"),
        "round_of": Variable(("row",), np.asarray([round for _, round in places]), "communication round"),
        dim: Variable((dim,), np.asarray(names), "data"),
        "axis": Variable(("axis",), np.asarray(["x", "y"]), "direction"),
        "x": Variable(("x",), X, "along the first direction", unit),
        "y": Variable(("y",), Y, "along the second direction", unit),
        "loss": Variable(grid, losses, "mean loss"),
        "error": Variable(grid, np.clip(losses / 100, 0, 1), "fraction of wrong predictions"),
        "standard_error": Variable(grid, np.full(losses.shape, np.nan), "standard error of the loss"),
        "done": Variable(grid, np.ones(losses.shape, dtype=np.int8), "1 where computed"),
        "examples": Variable(("row", dim), np.tile(counts, (rows, 1)), "number of examples"),
        "curvature": Variable(("row", "axis"), np.ones((rows, 2)), "second derivative"),
        "residual": Variable(("row", "axis"), np.full((rows, 2), np.nan), "residual"),
        "length": Variable(("row", "axis"), np.full((rows, 2), 5.0), "norm of the direction", "weight distance"),
        "cosine": Variable(("row",), np.zeros(rows), "cosine between the directions"),
        "norm": Variable(("row",), np.full(rows, 6.0), "norm of the weights", "weight distance"),
    }
    about = {"axes": axes, "seed": 7, "rise": 1.0, "range_from": "curvature", "batchnorm": "frozen"}
    return Table(variables, about)
