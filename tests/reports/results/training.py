"""What the study `training` stores, for three rounds."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable

ROUNDS = np.array([1, 2, 3])
BYTES = 2_000_000.0  # a round, down and up alike


def stored(scale: float = 1.0, swa: bool = False) -> Stored:
    """Target 0.1 is reached at once, 0.2 in round 2 (sooner by SWA: round 1), 0.9 never."""
    models = ["server", "mean", "swa"] if swa else ["server", "mean"]
    rounds = np.array([[1.0, 2.0, np.nan], [1.0, 1.0, 1.0], [np.nan, 1.0, np.nan]])[: len(models)]
    return Stored(
        "training",
        {"targets": [0.1, 0.2, 0.9], "last": None},
        {},
        {"rounds": _rounds(scale), "models": _models(models, rounds)},
    )


def _rounds(scale: float) -> Table:
    variables = {"round": Variable(("round",), ROUNDS, "communication round")}
    variables["accuracy"] = Variable(("round",), scale * np.array([0.1, np.nan, 0.3]), "test accuracy")
    for way in ("down", "up"):
        each = np.full(3, BYTES)
        variables[f"bytes_{way}"] = Variable(("round",), each, "bytes", "bytes")
        variables[f"bytes_{way}_so_far"] = Variable(("round",), np.cumsum(each), "bytes so far", "bytes")
    return Table(variables)


def _models(models: list[str], rounds: np.ndarray) -> Table:
    by_model, by_target = ("model",), ("model", "target")
    return Table(
        {
            "model": Variable(by_model, np.array(models), "global model"),
            "target": Variable(("target",), np.array([0.1, 0.2, 0.9]), "accuracy to reach"),
            "rounds_to_target": Variable(by_target, rounds, "first evaluated round there; NaN: never"),
            "bytes_to_target": Variable(by_target, 2 * BYTES * rounds, "bytes until then", "bytes"),
            "final_accuracy": Variable(by_model, np.full(len(models), 0.25), "mean accuracy"),
        }
    )
