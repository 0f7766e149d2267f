"""What the study `drift` stores; what was sent is not on record, so that updates are unknown."""

from __future__ import annotations

import numpy as np
import xarray as xr

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer, spread

ROUNDS, CLIENTS = [0, 5, 10], [0, 3]
PARTICIPANTS = [(5, 0), (10, 3)]  # round and client
DISTANCE, DISTANCE_ERROR = np.array([np.nan, 0.7, 0.8]), np.array([np.nan, 0.05, 0.06])
NORM = np.array([4.0, 5.0, 6.0])
PROXIMAL = np.array([np.nan, 0.3, 0.4])
NOTHING = np.full(3, np.nan)
OF_CLIENTS = ["distance", "model_norm", "update_norm", "update_cosine"]
OF_PROXIMAL_LOSS = ["proximal_loss", "proximal_error", "proximal_gradient_norm", "endpoint_cosine", "half_square"]


def stored(scale: float = 1.0, *, proximal: bool = True, cosines: bool = False, reference: str | None = None) -> Answer:
    means = {
        "distance": scale * DISTANCE,
        "distance_error": scale * DISTANCE_ERROR,
        "update_norm": NOTHING,
        "update_norm_error": NOTHING,
        "update_cosine": np.array([np.nan, 0.5, 0.4]) if cosines else NOTHING,
        "update_cosine_error": np.array([np.nan, 0.1, 0.1]) if cosines else NOTHING,
        "pair_distance": scale * 1.5 * DISTANCE,
        "pair_cosine": np.array([np.nan, 0.1, -0.1]) if cosines else NOTHING,
    }
    if proximal:
        means |= {
            "proximal_loss": scale * PROXIMAL,
            "proximal_loss_error": 0.1 * scale * PROXIMAL,
            "endpoint_cosine": -PROXIMAL,
            "endpoint_cosine_error": 0.1 * PROXIMAL,
        }
    by_client = ("round", "client")
    ones = spread(ROUNDS, CLIENTS, PARTICIPANTS, np.ones(2))
    layers = spread(ROUNDS, CLIENTS, PARTICIPANTS, np.ones((2, 2)))
    last = np.array([[np.nan], [np.nan], [1.0]])  # the only pair is of the last round
    found = {
        "norm": variable("round", scale * NORM, "norm of the global model's weights"),
        "moved_global": variable("round", NOTHING, "||w - what was sent||"),
        **{f"mean_{name}": variable("round", values, name) for name, values in means.items()},
        **{name: variable(by_client, ones, name) for name in [*OF_CLIENTS, *(OF_PROXIMAL_LOSS if proximal else ())]},
        "layer_distance": variable((*by_client, "layer"), layers, "||w_k - w|| within the tensor"),
        "first": variable(("round", "pair"), 0 * last, "participant"),
        "second": variable(("round", "pair"), 3 * last, "another participant"),
        "pair_distance": variable(("round", "pair"), 1.2 * last, "||w_k - w_j||"),
        "pair_cosine": variable(("round", "pair"), np.nan * last, "cosine of the updates D_k and D_j"),
    }
    about = {} if reference is None else {"reference": reference}
    data = xr.Dataset(found, {"round": ROUNDS, "client": CLIENTS, "layer": ["weight", "bias"]}, about)
    return make_answer("drift", data, limit=None, tau=3.0, proximal=proximal, reference="global")
