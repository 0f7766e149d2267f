"""What the study `plane` stores, made up: a loss that grows along x alone, one cell missing, one far above all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.store import Stored, Table, Variable

X, Y = np.linspace(-0.2, 1.2, 8), np.linspace(-0.2, 1.0, 5)
PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [0.4, 0.8], [0.5, 0.3]])


def stored(runs: Sequence[str], *, models: str = "clients", height: float = 1.0) -> Stored:
    """height: of the plane's picture, times that of PLACES."""
    if models == "runs":
        labels = [f"{name} round 10" for name in runs]
        tables = {"plane_0": _table(runs[0], labels, models, height)}
    else:
        tables = {}
        for number, name in enumerate(runs):
            labels = [*(f"{name} round 10 client {client}" for client in (0, 2, 5)), f"{name} round 10"]
            tables[f"plane_{number}"] = _table(name, labels, models, height)
    return Stored("plane", {"models": models, "margin": 0.2}, {"subjects": list(runs)}, tables)


def _table(run: str, labels: list[str], models: str, height: float) -> Table:
    train = np.tile(1 + 10 * (X[:, None] + 0.2), (1, len(Y)))
    loss = np.stack([train, train + 1])
    loss[:, 0, 0], loss[:, -1, -1] = np.nan, 1000.0
    shown = PLACES[: len(labels)] * [1, height]
    unit, own = "weight distance", np.array([3.0, 13.0, 7.0, 5.5])[: len(labels)]
    return Table(
        {
            "split": Variable(("split",), np.asarray(["train", "test"]), "data of everyone"),
            "x": Variable(("x",), X, "from the first model towards the second", unit),
            "y": Variable(("y",), Y * height, "at right angles to it, towards the third", unit),
            "loss": Variable(("split", "x", "y"), loss, "mean loss"),
            "error": Variable(("split", "x", "y"), loss / 100, "fraction of wrong predictions"),
            "standard_error": Variable(("split", "x", "y"), np.full(loss.shape, np.nan), "standard error"),
            "done": Variable(("split", "x", "y"), np.ones(loss.shape, dtype=np.int8), "1 where computed"),
            "examples": Variable(("split",), np.array([100, 40]), "number of examples"),
            "label": Variable(("model",), np.asarray(labels), "model"),
            "model_x": Variable(("model",), shown[:, 0], "its place along x", unit),
            "model_y": Variable(("model",), shown[:, 1], "its place along y", unit),
            "distance": Variable(("model",), np.array([0, 0, 0, 0.25])[: len(labels)], "its distance", unit),
            "model_loss": Variable(("split", "model"), np.stack([own, own + 1]), "its own loss"),
            "model_error": Variable(("split", "model"), np.stack([own, own + 1]) / 100, "its own error"),
        },
        {"models": models, "round": 10, "run": run, "batchnorm": "interpolated"},
    )
