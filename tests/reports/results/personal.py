"""What the study `personal` stores: two strategies, three clients, one of them without test examples."""

from __future__ import annotations

import numpy as np
import xarray as xr

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer

CLIENTS = [0, 1, 4]


def stored(scale: float = 1.0, strategies: tuple[str, ...] = ("finetune", "knn")) -> Answer:
    count = len(strategies)
    before = np.tile(scale * np.array([0.4, 0.6, np.nan]), (count, 1, 1))
    after = scale * np.array([[0.8, 1.0, np.nan], [0.5, 0.9, np.nan]])[:count, None]
    by_client, by_strategy = ("strategy", "round", "client"), ("strategy", "round")
    found = {
        "before": variable(by_client, before, "of the global model"),
        "after": variable(by_client, after, "of the client's own model"),
        "mean": variable(by_strategy, scale * np.array([[0.9], [0.7]])[:count], "mean over clients"),
        "mean_before": variable(by_strategy, np.full((count, 1), scale * 0.5), "mean of the global model"),
        "spread": variable(by_strategy, scale * np.array([[0.1], [0.2]])[:count], "spread over clients"),
    }
    data = xr.Dataset(found, {"strategy": list(strategies), "round": [10], "client": CLIENTS})
    return make_answer("personal", data, model="server", strategies=list(strategies))
