"""What the study `forgetting` stores: three rounds, two classes, two clients."""

from __future__ import annotations

import numpy as np
import xarray as xr

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer, spread

ROUNDS, CLASSES, CLIENTS = [0, 5, 10], [0, 1], [0, 3]
PARTICIPANTS = [(5, 0), (5, 3), (10, 3)]  # round and client
ACCURACY = np.array([[0.0, 0.5], [0.25, np.nan], [1.0, 0.125]])
FEATURES = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]])
OUTPUTS = np.array([[1.0, 2.0], [6.0, 3.0], [4.0, np.nan]])


def stored(scale: float = 1.0, local: bool = True) -> Answer:
    by_class, by_client = ("round", "class"), ("round", "client")
    found = {
        "total": variable("class", [8, 12], "examples"),
        "accuracy": variable(by_class, scale * ACCURACY, "accuracy on each class"),
        "feature_norm": variable(by_class, scale * FEATURES, "norm"),
        "forgetting": variable("round", scale * np.array([np.nan, np.nan, -0.3]), "forgetting"),
        "client_accuracy": variable(by_client, scale * np.full((3, 2), 0.5), "accuracy"),
        "client_output_norm": variable(by_client, scale * OUTPUTS, "mean L2 norm of the logits"),
        "client_forgetting": variable("round", scale * np.array([np.nan, 0.1, 0.2]), "forgetting"),
    }
    if local:
        wide, own = (
            spread(ROUNDS, CLIENTS, PARTICIPANTS, scale * np.array(values))
            for values in ([0.2, 0.4, np.nan], [0.8, 1.0, 0.7])
        )
        counts = spread(ROUNDS, CLIENTS, PARTICIPANTS, [[5, 0], [1, 9], [1, 9]])
        found["local_accuracy_all"] = variable(by_client, wide, "on everyone's data")
        found["own_accuracy"] = variable(by_client, own, "on own data")
        found["own_total"] = variable((*by_client, "class"), counts, "own examples")
    data = xr.Dataset(found, {"round": ROUNDS, "class": CLASSES, "client": CLIENTS})
    return make_answer("forgetting", data, split="test", client_split="train", model="server", limit=None)
