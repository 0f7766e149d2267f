"""What the study `drift` stores; what was sent is not on record, so that updates are unknown."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable

ROUNDS = np.array([0, 5, 10])
DISTANCE, DISTANCE_ERROR = np.array([np.nan, 0.7, 0.8]), np.array([np.nan, 0.05, 0.06])
NORM = np.array([4.0, 5.0, 6.0])
PROXIMAL = np.array([np.nan, 0.3, 0.4])
NOTHING = np.full(3, np.nan)
OF_CLIENTS = [
    "distance",
    "model_norm",
    "update_norm",
    "update_cosine",
    "proximal_loss",
    "proximal_error",
    "proximal_gradient_norm",
    "endpoint_cosine",
    "half_square",
]


def stored(scale: float = 1.0, *, proximal: bool = True, cosines: bool = False) -> Stored:
    numbers = {
        "norm": scale * NORM,
        "moved_global": NOTHING,
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
        numbers |= {
            "proximal_loss": scale * PROXIMAL,
            "proximal_loss_error": 0.1 * scale * PROXIMAL,
            "endpoint_cosine": -PROXIMAL,
            "endpoint_cosine_error": 0.1 * PROXIMAL,
        }
    rounds = {
        "round": Variable(("round",), ROUNDS, "communication round"),
        **{name: Variable(("round",), values, name) for name, values in numbers.items()},
    }
    row = ("row",)
    clients = {
        "round_of": Variable(row, np.array([5, 10]), "communication round"),
        "client": Variable(row, np.array([0, 3]), "participant"),
        "layer": Variable(("layer",), np.array(["weight", "bias"]), "parameter tensor"),
        "layer_distance": Variable(("row", "layer"), np.ones((2, 2)), "||w_k - w|| within the tensor"),
        **{name: Variable(row, np.ones(2), name) for name in OF_CLIENTS if proximal or name in OF_CLIENTS[:4]},
    }
    pairs = {
        "round_of": Variable(row, np.array([10]), "communication round"),
        "first": Variable(row, np.array([0]), "participant"),
        "second": Variable(row, np.array([3]), "another participant"),
        "pair_distance": Variable(row, np.array([1.2]), "||w_k - w_j||"),
        "pair_cosine": Variable(row, np.array([np.nan]), "cosine of the updates D_k and D_j"),
    }
    tables = {"rounds": Table(rounds), "clients": Table(clients), "pairs": Table(pairs)}
    settings = {"limit": None, "tau": 3.0, "proximal": proximal, "reference": "global"}
    return Stored("drift", settings, {"batchnorm": ["frozen"], "seed": [0]}, tables)
