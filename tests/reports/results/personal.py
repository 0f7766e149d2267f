"""What the study `personal` stores: two ways, three clients, one of them without test examples."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable


def stored(scale: float = 1.0, ways: tuple[str, ...] = ("finetune", "knn")) -> Stored:
    before = scale * np.array([0.4, 0.6, np.nan])
    after = scale * np.array([[0.8, 1.0, np.nan], [0.5, 0.9, np.nan]])[: len(ways)]
    by_client, by_way = ("way", "round", "client"), ("way", "round")
    table = Table(
        {
            "way": Variable(("way",), np.array(ways), "how models are made"),
            "round": Variable(("round",), np.array([10]), "communication round"),
            "client": Variable(("client",), np.array([0, 1, 4]), "client"),
            "before": Variable(by_client, np.stack([before[None]] * len(ways)), "of the global model"),
            "after": Variable(by_client, after[:, None], "of the client's own model"),
            "mean": Variable(by_way, scale * np.array([[0.9], [0.7]])[: len(ways)], "mean over clients"),
            "mean_before": Variable(by_way, np.full((len(ways), 1), scale * 0.5), "mean of the global model"),
            "spread": Variable(by_way, scale * np.array([[0.1], [0.2]])[: len(ways)], "spread over clients"),
        }
    )
    return Stored("personal", {"model": "server", "ways": list(ways)}, {"batchnorm": ["frozen"]}, {"personal": table})
