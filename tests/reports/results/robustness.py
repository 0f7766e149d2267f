"""What the study `robustness` stores: three corruptions in two severities; saturate fits no grey image."""

from __future__ import annotations

import numpy as np
import xarray as xr

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer

NAMES = ["gaussian_noise", "glass_blur", "fog"]


def stored(scale: float = 1.0) -> Answer:
    accuracy = scale * np.array([[[0.8, 0.6], [0.3, 0.1], [np.nan, np.nan]]])  # (round, corruption, severity)
    axes = ("round", "corruption", "severity")
    found = {
        "clean_accuracy": variable("round", [scale * 0.9], "clean accuracy"),
        "accuracy": variable(axes, accuracy, "accuracy on corrupted images"),
        "standard_error": variable(axes, np.full((1, 3, 2), 0.02), "standard error"),
        "mean_by_corruption": variable(("round", "corruption"), accuracy.mean(axis=2), "mean over severities"),
        "mean_accuracy": variable("round", [scale * 0.45], "mean over all"),
    }
    coords = {"round": [10], "corruption": NAMES, "severity": [1, 5]}
    data = xr.Dataset(found, coords, {"left_out": "saturate", "total": 360})
    return make_answer("robustness", data, split="test", limit=None)
