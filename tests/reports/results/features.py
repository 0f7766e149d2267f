"""What the study `features` stores: six examples of three classes, one of them taken for another."""

from __future__ import annotations

import numpy as np
import xarray as xr

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer

LABELS = np.array([0, 0, 1, 1, 7, 7])
PREDICTED = np.array([0, 0, 1, 7, 7, 7])
POINTS = np.array([[0.0, 0.0], [1.0, 0.5], [10.0, 0.0], [11.0, 0.5], [0.0, 10.0], [np.nan, np.nan]])


def stored(
    scale: float = 1.0, labels: np.ndarray = LABELS, predicted: np.ndarray = PREDICTED, points: np.ndarray = POINTS
) -> Answer:
    every = ("model", "round")
    found = {
        "predicted": variable((*every, "example"), [[0 * predicted, predicted]], "predicted"),
        "tsne": variable((*every, "example", "axis"), scale * np.asarray([[0 * points, points]]), "t-SNE"),
        "divergence": variable(every, [[0.5, 0.4]], "divergence"),
    }
    coords = {
        "model": ["server"],
        "round": [5, 10],
        "axis": [1, 2],
        "example_index": variable("example", np.arange(20, 20 + len(labels)), "which example"),
        "label": variable("example", labels, "its class"),
    }
    return make_answer("features", xr.Dataset(found, coords), split="test", perplexity=30.0, count=1000)
