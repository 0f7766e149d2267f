"""What the study `robustness` stores: three corruptions in two severities; saturate fits no grey image."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable

NAMES = np.array(["gaussian_noise", "glass_blur", "fog"])


def stored(scale: float = 1.0) -> Stored:
    accuracy = scale * np.array([[[0.8, 0.6], [0.3, 0.1], [np.nan, np.nan]]])  # (round, corruption, severity)
    axes = ("round", "corruption", "severity")
    table = Table(
        {
            "round": Variable(("round",), np.array([10]), "communication round"),
            "corruption": Variable(("corruption",), NAMES, "kind of corruption"),
            "severity": Variable(("severity",), np.array([1, 5]), "severity"),
            "clean_accuracy": Variable(("round",), scale * np.array([0.9]), "clean accuracy"),
            "accuracy": Variable(axes, accuracy, "accuracy on corrupted images"),
            "standard_error": Variable(axes, np.full((1, 3, 2), 0.02), "standard error"),
            "mean_by_corruption": Variable(("round", "corruption"), accuracy.mean(axis=2), "mean over severities"),
            "mean_accuracy": Variable(("round",), scale * np.array([0.45]), "mean over all"),
        },
        {"left_out": ["saturate"], "total": 360},
    )
    return Stored("robustness", {"split": "test", "limit": None}, {"batchnorm": ["frozen"]}, {"robustness": table})
