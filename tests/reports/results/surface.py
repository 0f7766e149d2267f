"""What the study `surface` stores, made up: planes in x and y, so that every contour line is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from analysis import store
from analysis.store import Answer
from analysis.study import variable

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
) -> Answer:
    """Global models on all examples of train and test, participants' models on their own ones and on train."""
    models = [(name, round, client) for client in (-1, *range(clients)) for name in runs for round in rounds]
    models.sort(key=lambda one: one[2] >= 0)
    splits = ["train", "test", *(["own"] if clients else [])]
    loss = np.full((len(models), len(splits), len(X), len(Y)), np.nan)
    counts = np.zeros(loss.shape[:2], dtype=np.int64)
    for number, (name, round, client) in enumerate(models):
        base = loss_of(name, shapes)
        if client < 0:
            loss[number, :2], counts[number, :2] = [base * 10 / round, base * 10 / round + 0.5], [100, 40]
        else:
            loss[number, 0], loss[number, 2] = base * (client + 1), base * (client + 1) * 0.01
            counts[number, 0], counts[number, 2] = 100, 20
    settings = {"model": "server", "axes": axes, "clients": clients, "splits": ["train", "test"], "limit": None}
    provenance = {"subjects": list(runs), "seed": [0] * len(runs)}
    return Answer("surface", store.DEFAULT, settings, provenance, _name(models, splits, loss, counts, axes))


def _name(
    models: Sequence[tuple[str, int, int]], splits: Sequence[str], loss: np.ndarray, counts: np.ndarray, axes: str
) -> xr.Dataset:
    grid, unit, count = ("model", "split", "x", "y"), "weight distance" if axes == "eigen" else "1", len(models)
    run, round, client = zip(*models, strict=True)
    done = np.broadcast_to((counts > 0)[..., None, None], loss.shape)
    variables = {
        "loss": variable(grid, loss, "mean loss"),
        "error": variable(grid, np.clip(loss / 100, 0, 1), "fraction of wrong predictions"),
        "standard_error": variable(grid, np.full(loss.shape, np.nan), "standard error of the loss"),
        "done": variable(grid, done, "whether it was computed"),
        "examples": variable(("model", "split"), counts, "number of examples"),
        "curvature": variable(("model", "axis"), np.ones((count, 2)), "second derivative"),
        "residual": variable(("model", "axis"), np.full((count, 2), np.nan), "residual"),
        "length": variable(("model", "axis"), np.full((count, 2), 5.0), "norm of the direction", "weight distance"),
        "cosine": variable("model", np.zeros(count), "cosine between the directions"),
        "norm": variable("model", np.full(count, 6.0), "norm of the weights", "weight distance"),
    }
    coords = {
        "model": range(count),
        "model_run": variable("model", run, "run"),
        "model_round": variable("model", round, "communication round"),
        "model_client": variable("model", client, "client; -1: the global model"),
        "split": list(splits),
        "axis": ["x", "y"],
        "x": variable("x", X, "along the first direction", unit),
        "y": variable("y", Y, "along the second direction", unit),
    }
    about = {"axes": axes, "seed": 7, "rise": 1.0, "range_from": "curvature", "batchnorm": "frozen"}
    return xr.Dataset(variables, coords, about)
