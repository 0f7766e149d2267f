"""What the study `local_global` stores, of two rounds."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer, spread

ROUNDS, CLIENTS = [5, 10], [0, 1, 2, 3]
PARTICIPANTS = [(5, 0), (10, 3), (10, 1)]  # round and client
OWN, EVERYONE, WHOLE = np.array([np.nan, 2.0, 3.0]), np.array([9.0, 40.0, 30.0]), np.array([9.0, 12.0])
EACH = np.array([[8.0, 9.0, 10.0, 11.0]] * 2)


def stored(scale: float = 1.0) -> Answer:
    by_client = ("round", "client")

    def local(values: ArrayLike, long_name: str) -> xr.Variable:
        return variable(by_client, spread(ROUNDS, CLIENTS, PARTICIPANTS, values), long_name)

    def ranked(one: xr.Variable) -> xr.Variable:
        return variable((*one.dims, "rank"), one.values[..., None], one.attrs["long_name"])

    found = {
        "local_eigenvalue": ranked(local(scale * OWN, "eigenvalues on the client's own data")),
        "local_residual": ranked(local(0.001 * scale * OWN, "their residuals")),
        "global_eigenvalue": ranked(local(scale * EVERYONE, "eigenvalues on everyone's data")),
        "global_residual": ranked(local(0.001 * scale * EVERYONE, "their residuals")),
        "local_loss": local([0.1, 0.2, 0.3], "loss on the client's own data"),
        "global_loss": local([1.1, 1.2, 1.3], "loss on everyone's data"),
        "distance": local([0.5, 0.6, 0.7], "||w_k - w||"),
        "global_model_eigenvalue": ranked(variable("round", scale * WHOLE, "on everyone's data")),
        "global_model_residual": ranked(variable("round", 0.001 * scale * WHOLE, "their residuals")),
        "global_model_loss": variable("round", [1.0, 0.9], "loss on everyone's data"),
        "global_model_on_client_eigenvalue": ranked(variable(by_client, scale * EACH, "on each client")),
        "global_model_on_client_residual": ranked(variable(by_client, 0.001 * scale * EACH, "their residuals")),
        "global_model_on_client_loss": variable(by_client, 0.1 * EACH, "loss on each client's data"),
    }
    data = xr.Dataset(found, {"round": ROUNDS, "client": CLIENTS, "rank": [1]})
    return make_answer("local_global", data, limit=None, top=1)
