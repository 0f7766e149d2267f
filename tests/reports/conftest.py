"""Run directories made up of files alone: reports never train and never measure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from analysis import store
from analysis.store import Stored, Table, Variable
from reports.runs import Collection, read_runs

ROUNDS = np.array([0, 5, 10])


def spectrum(scale: float) -> Stored:
    values = scale * np.array([[1.0, 0.5], [40.0, 20.0], [30.0, 10.0]])
    table = Table(
        {
            "round": Variable(("round",), ROUNDS, "communication round"),
            "rank": Variable(("rank",), np.array([1, 2]), "rank"),
            "eigenvalue": Variable(("round", "rank"), values, "eigenvalue"),
            "residual": Variable(("round", "rank"), 0.01 * values, "residual"),
            "converged": Variable(("round", "rank"), np.array([[1, 1], [0, 1], [1, 1]]), "converged"),
        }
    )
    return Stored("curvature", {"split": "train"}, {}, {"spectrum": table})


def local_global(scale: float) -> Stored:
    local = {
        "round_of": Variable(("row",), np.array([5, 10, 10]), "round"),
        "client": Variable(("row",), np.array([0, 3, 1]), "client"),
    }
    for name, values in {"local": [9.0, 2.0, 3.0], "global": [9.0, 40.0, 30.0]}.items():
        matrix = scale * np.array(values)[:, None]
        local[f"{name}_eigenvalue"] = Variable(("row", "rank"), matrix, name)
        local[f"{name}_residual"] = Variable(("row", "rank"), 0.001 * matrix, name)
    whole = {"global_eigenvalue": Variable(("round", "rank"), scale * np.array([[9.0], [12.0]]), "global")}
    return Stored("local_global", {}, {}, {"local_models": Table(local), "global_model": Table(whole)})


def lines() -> Stored:
    x = np.linspace(-1, 2, 7)
    loss = np.stack([[1 + x**2, 2 + x**2]])
    table = Table(
        {
            "start": Variable(("row",), np.array(["run_a round 5"]), "start"),
            "end": Variable(("row",), np.array(["run_a round 10"]), "end"),
            "split": Variable(("split",), np.array(["train", "test"]), "split"),
            "x": Variable(("x",), x, "gamma"),
            "loss": Variable(("row", "split", "x"), loss, "loss"),
            "error": Variable(("row", "split", "x"), loss / 10, "error"),
            "loss_barrier": Variable(("row", "split", "definition"), np.full((1, 2, 3), 0.25), "barrier"),
            "loss_where": Variable(("row", "split", "definition"), np.full((1, 2, 3), 0.5), "where"),
        }
    )
    return Stored("interpolation", {}, {}, {"lines": table})


def make_run(
    path: Path, algorithm: str, *, seed: int = 0, scale: float = 1.0, data: str = "digits", swa: bool = False
) -> Path:
    (path / "analysis").mkdir(parents=True)
    averaging = "[swa]\ncycle = 5\n" if swa else ""
    (path / "config.toml").write_text(
        f'seed = {seed}\n[data]\nname = "{data}"\n[algorithm]\nname = "{algorithm}"\n'
        f'[partition]\nname = "dirichlet_total"\nalpha = 0.5\n{averaging}'
    )
    records = [
        {
            "round": t,
            "train_loss": 2.0 / t,
            "accuracy": 0.1 * t * scale,
            "swa_accuracy": 0.9 if swa and t == 3 else None,
        }
        for t in (1, 2, 3)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    store.write(path / "analysis" / "curvature.h5", spectrum(scale))
    store.write(path / "analysis" / "local_global.h5", local_global(scale))
    store.write(path / "analysis" / "interpolation.h5", lines())
    return path


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    return read_runs(
        [
            make_run(tmp_path / "run_a", "fedavg"),
            make_run(tmp_path / "run_b", "fedavg", seed=1, scale=0.5),
            make_run(tmp_path / "run_c", "fedasam", swa=True, scale=0.8),
        ]
    )
