"""What the study `plane` stores, made up: a loss that grows along x alone, one cell missing, one far above all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from analysis import store
from analysis.store import Answer
from analysis.study import combine, variable

X, Y = np.linspace(-0.2, 1.2, 8), np.linspace(-0.2, 1.0, 5)
PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [0.4, 0.8], [0.5, 0.3]])
GRID = ("plane", "split", "x_index", "y_index")


def stored(runs: Sequence[str], *, models: str = "clients", height: float = 1.0) -> Answer:
    """height: of the plane's picture, times that of PLACES."""
    if models == "runs":
        planes = [[(name, -1) for name in runs]]
    else:
        planes = [[(name, client) for client in (0, 2, 5, -1)] for name in runs]
    data = combine(_measure(number, corners, height) for number, corners in enumerate(planes))
    names = ("x", "y", "batchnorm", "model_run", "model_round", "model_client", "model_x", "model_y")
    data = data.set_coords(names).assign_attrs(models=models)
    return Answer("plane", store.DEFAULT, {"models": models, "margin": 0.2}, {"subjects": list(runs)}, data)


def _measure(number: int, corners: Sequence[tuple[str, int]], height: float) -> xr.Dataset:
    """One plane through models of round 10, each given by run and client."""
    train = np.tile(1 + 10 * (X[:, None] + 0.2), (1, len(Y)))
    loss = np.stack([train, train + 1])[None]
    loss[..., 0, 0], loss[..., -1, -1] = np.nan, 1000.0
    count, unit = len(corners), "weight distance"
    shown, own = PLACES[:count] * [1, height], np.array([3.0, 13.0, 7.0, 5.5])[:count]
    by_model, by_split = ("plane", "model"), ("plane", "split", "model")
    own = np.stack([own, own + 1])[None]
    variables = {
        "loss": variable(GRID, loss, "mean loss"),
        "error": variable(GRID, loss / 100, "fraction of wrong predictions"),
        "standard_error": variable(GRID, np.full(loss.shape, np.nan), "standard error"),
        "done": variable(GRID, np.ones(loss.shape, dtype=bool), "whether it was computed"),
        "x": variable(("plane", "x_index"), X[None], "from the first model towards the second", unit),
        "y": variable(("plane", "y_index"), Y[None] * height, "at right angles to it, towards the third", unit),
        "examples": variable(("plane", "split"), [[100, 40]], "number of examples"),
        "batchnorm": variable("plane", ["interpolated"], "treatment of norm layers"),
        "model_run": variable(by_model, [[run for run, _ in corners]], "run"),
        "model_round": variable(by_model, np.full((1, count), 10), "communication round"),
        "model_client": variable(by_model, [[client for _, client in corners]], "client; -1: the global model"),
        "model_x": variable(by_model, shown[None, :, 0], "its place along x", unit),
        "model_y": variable(by_model, shown[None, :, 1], "its place along y", unit),
        "distance": variable(by_model, np.array([[0, 0, 0, 0.25]])[:, :count], "its distance", unit),
        "model_loss": variable(by_split, own, "its own loss"),
        "model_error": variable(by_split, own / 100, "its own error"),
    }
    coords = {"plane": [number], "split": ["train", "test"], "model": ["a", "b", "c", "global"][:count]}
    axes = {"x_index": range(len(X)), "y_index": range(len(Y))}
    return xr.Dataset(variables, {**coords, **axes})
