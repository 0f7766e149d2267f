"""What the study `sharpness` stores: two kinds, of the global model and of two participants' models."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer, spread

KINDS, RADII = np.array(["sam", "average"]), np.array([0.05, 0.005])
ROUNDS, CLIENTS = [5, 10], [0, 3, 7]
PARTICIPANTS = [(5, 7), (10, 0), (10, 3)]  # round and client
GLOBAL = np.array([[9.0, 9.0], [0.2, 0.003]])  # (round, kind)
GLOBAL_ERROR = np.array([[np.nan, 9.0], [np.nan, 0.0005]])
OWN = np.array([[9.0, 9.0], [0.01, 0.0001], [0.03, 0.0003]])  # (participant, kind)
EVERYONE = 10 * OWN


def stored(scale: float = 1.0, *, local: bool = True, everyone: bool = True) -> Answer:
    def measures(prefix: str, values: NDArray[np.float64], error: NDArray[np.float64]) -> dict[str, xr.Variable]:
        dims = ("round", "kind") if values.ndim == 2 else ("round", "client", "kind")
        slope = 5 * np.repeat(values[..., :1], 2, axis=-1)
        return {
            f"{prefix}_value": variable(dims, scale * values, "sharpness: how much the loss rises (keskar: per cent)"),
            f"{prefix}_standard_error": variable(dims, scale * error, "its standard error over samples or batches"),
            f"{prefix}_base": variable(dims, values / values, "the loss itself, same model and data"),
            f"{prefix}_gradient_norm": variable(dims, slope, "norm of the gradient"),
            f"{prefix}_evaluations": variable(dims, 2 * values / values, "loss or gradient evaluations spent"),
        }

    each = np.repeat(GLOBAL[:, None], 3, axis=1)
    found = measures("global_model", GLOBAL, GLOBAL_ERROR)
    found |= measures("global_model_on_client", 7 * each, 0.1 * each)
    for prefix, rows in (("local", OWN), ("global", EVERYONE)):
        if local and (everyone or prefix == "local"):
            values = spread(ROUNDS, CLIENTS, PARTICIPANTS, rows)
            found |= measures(prefix, values, np.full(values.shape, np.nan))
    radius = variable("kind", RADII, "radius or deviation")
    data = xr.Dataset(found, {"round": ROUNDS, "client": CLIENTS, "kind": KINDS, "radius": radius})
    return make_answer("sharpness", data, limit=100, kinds=KINDS.tolist())
