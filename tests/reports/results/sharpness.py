"""What the study `sharpness` stores: two kinds, of the global model and of two participants' models."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable

KINDS, RADII = np.array(["sam", "average"]), np.array([0.05, 0.005])
GLOBAL = np.array([[9.0, 9.0], [0.2, 0.003]])  # (round, kind)
GLOBAL_ERROR = np.array([[np.nan, 9.0], [np.nan, 0.0005]])
OWN = np.array([[9.0, 9.0], [0.01, 0.0001], [0.03, 0.0003]])  # (row, kind); the first row is of round 5
EVERYONE = 10 * OWN


def stored(scale: float = 1.0, *, local: bool = True, everyone: bool = True) -> Stored:
    about = {
        "kind": Variable(("kind",), KINDS, "kind of sharpness"),
        "radius": Variable(("kind",), RADII, "radius or deviation"),
    }

    def measures(side: str, dims: tuple[str, ...], values: np.ndarray, error: np.ndarray) -> dict[str, Variable]:
        return {
            f"{side}_value": Variable(dims, scale * values, "sharpness: how much the loss rises (keskar: per cent)"),
            f"{side}_standard_error": Variable(dims, scale * error, "its standard error over samples or batches"),
            f"{side}_base": Variable(dims, np.ones_like(values), "the loss itself, same model and data"),
            f"{side}_gradient_norm": Variable(dims, 5 * np.repeat(values[..., :1], 2, axis=-1), "norm of the gradient"),
            f"{side}_evaluations": Variable(dims, np.full_like(values, 2.0), "loss or gradient evaluations spent"),
        }

    shared = {"round": Variable(("round",), np.array([5, 10]), "communication round"), **about}
    shared["client"] = Variable(("client",), np.array([0, 3, 7]), "client")
    each = np.repeat(GLOBAL[:, None], 3, axis=1)
    shared |= measures("global", ("round", "kind"), GLOBAL, GLOBAL_ERROR)
    shared |= measures("local", ("round", "client", "kind"), 7 * each, 0.1 * each)
    tables = {"global_model": Table(shared)}
    if local:
        rows = {
            "round_of": Variable(("row",), np.array([5, 10, 10]), "communication round"),
            "client": Variable(("row",), np.array([7, 0, 3]), "participant"),
            **about,
            **measures("local", ("row", "kind"), OWN, np.full(OWN.shape, np.nan)),
        }
        if everyone:
            rows |= measures("global", ("row", "kind"), EVERYONE, np.full(OWN.shape, np.nan))
        tables["local_models"] = Table(rows)
    return Stored("sharpness", {"limit": 100, "kinds": list(KINDS)}, {"batchnorm": ["frozen"], "seed": [0]}, tables)
