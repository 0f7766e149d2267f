"""What the study `features` stores: six examples of three classes, one of them taken for another."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable

LABELS = np.array([0, 0, 1, 1, 7, 7])
PREDICTED = np.array([0, 0, 1, 7, 7, 7])
POINTS = np.array([[0.0, 0.0], [1.0, 0.5], [10.0, 0.0], [11.0, 0.5], [0.0, 10.0], [np.nan, np.nan]])


def stored(scale: float = 1.0) -> Stored:
    every = ("model", "round")
    table = Table(
        {
            "model": Variable(("model",), np.array(["server"]), "global model"),
            "round": Variable(("round",), np.array([5, 10]), "communication round"),
            "axis": Variable(("axis",), np.array([1, 2]), "axis"),
            "place": Variable(("example",), np.arange(20, 26), "which example"),
            "label": Variable(("example",), LABELS, "its class"),
            "predicted": Variable((*every, "example"), np.stack([[0 * PREDICTED, PREDICTED]]), "predicted"),
            "tsne": Variable((*every, "example", "axis"), scale * np.stack([[0 * POINTS, POINTS]]), "t-SNE"),
            "divergence": Variable(every, np.array([[0.5, 0.4]]), "divergence"),
        }
    )
    settings = {"split": "test", "perplexity": 30.0, "count": 1000}
    return Stored("features", settings, {"batchnorm": ["frozen"]}, {"features": table})
