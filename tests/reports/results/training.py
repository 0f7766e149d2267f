"""What the study `training` stores, for three rounds."""

from __future__ import annotations

import numpy as np
import xarray as xr

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer

ROUNDS, TARGETS = [1, 2, 3], [0.1, 0.2, 0.9]
BYTES = 2_000_000.0  # a round, down and up alike


def stored(scale: float = 1.0, swa: bool = False) -> Answer:
    """Target 0.1 is reached at once, 0.2 in round 2 (sooner by SWA: round 1), 0.9 never."""
    models = ["server", "mean", "swa"] if swa else ["server", "mean"]
    reached = np.array([[1.0, 2.0, np.nan], [1.0, 1.0, 1.0], [np.nan, 1.0, np.nan]])[: len(models)]
    each, by_target = np.full(3, BYTES), ("model", "target")
    found = {
        "accuracy": variable("round", scale * np.array([0.1, np.nan, 0.3]), "test accuracy"),
        **{f"bytes_{way}": variable("round", each, "bytes", "bytes") for way in ("down", "up")},
        **{
            f"bytes_{way}_so_far": variable("round", np.cumsum(each), "bytes so far", "bytes") for way in ("down", "up")
        },
        "rounds_to_target": variable(by_target, reached, "first evaluated round there; NaN: never"),
        "bytes_to_target": variable(by_target, 2 * BYTES * reached, "bytes until then", "bytes"),
        "final_accuracy": variable("model", np.full(len(models), 0.25), "mean accuracy"),
    }
    data = xr.Dataset(found, {"round": ROUNDS, "model": models, "target": TARGETS})
    return make_answer("training", data, targets=TARGETS, last=None)
