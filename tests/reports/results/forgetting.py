"""What the study `forgetting` stores: three rounds, two classes, two clients."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable

ROUNDS = np.array([0, 5, 10])
CLASSES = Variable(("class",), np.array([0, 1]), "true class")
OUTPUTS = np.array([[1.0, 2.0], [6.0, 3.0], [4.0, np.nan]])
AXIS = Variable(("round",), ROUNDS, "communication round")


def stored(scale: float = 1.0, local: bool = True) -> Stored:
    settings = {"split": "test", "client_split": "train", "model": "server", "limit": None}
    tables = {"global_model": _global(scale), "clients": _clients(scale)}
    if local:
        tables["local_models"] = _local(scale)
    return Stored("forgetting", settings, {"batchnorm": ["frozen"]}, tables)


def _global(scale: float) -> Table:
    accuracy = scale * np.array([[0.0, 0.5], [0.25, np.nan], [1.0, 0.125]])
    by_class = ("round", "class")
    return Table(
        {
            "round": AXIS,
            "class": CLASSES,
            "total": Variable(("class",), np.array([8, 12]), "examples"),
            "accuracy": Variable(by_class, accuracy, "accuracy on each class"),
            "feature_norm": Variable(by_class, scale * np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]]), "norm"),
            "forgetting": Variable(("round",), scale * np.array([np.nan, np.nan, -0.3]), "forgetting"),
        }
    )


def _clients(scale: float) -> Table:
    return Table(
        {
            "round": AXIS,
            "client": Variable(("client",), np.array([0, 3]), "client"),
            "accuracy": Variable(("round", "client"), scale * np.full((3, 2), 0.5), "accuracy"),
            "output_norm": Variable(("round", "client"), scale * OUTPUTS, "mean L2 norm of the logits"),
            "forgetting": Variable(("round",), scale * np.array([np.nan, 0.1, 0.2]), "forgetting"),
        }
    )


def _local(scale: float) -> Table:
    """Two participants in round 5, one in round 10."""
    return Table(
        {
            "round_of": Variable(("row",), np.array([5, 5, 10]), "round"),
            "client": Variable(("row",), np.array([0, 3, 3]), "participant"),
            "class": CLASSES,
            "accuracy_all": Variable(("row",), scale * np.array([0.2, 0.4, np.nan]), "on everyone's data"),
            "own_accuracy": Variable(("row",), scale * np.array([0.8, 1.0, 0.7]), "on own data"),
            "own_total": Variable(("row", "class"), np.array([[5, 0], [1, 9], [1, 9]]), "own examples"),
        }
    )
