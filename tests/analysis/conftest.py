"""Small trained federations that the studies are tested on."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.subjects import Limits, Run
from training import config
from training.engine.run import train
from training.storage import checkpoint, run_directory

RECIPE: dict[str, Any] = {
    "dtype": "float64",
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [4]},
    "partition": {"name": "dirichlet_total", "clients": 5, "alpha": 0.5},
    "local": {"lr": 0.1, "batch_size": 32, "epochs": 1},
    "rounds": {"count": 4, "participants": 3},
    "checkpoints": {"every": 2, "keep_locals": "all"},
}


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Train a variation of RECIPE: make_run(algorithm={"name": "fedsam"}, ...) with whole tables replaced."""

    def make(**tables: Any) -> Run:
        out: Path = tmp_path_factory.mktemp("runs")
        torch.set_num_threads(1)
        path = train(config.validate({**RECIPE, **tables}), out, backend="serial")
        return Run(path, limits=Limits(workers=1))

    return make


@pytest.fixture
def forget_sent(tmp_path: Path) -> Callable[[Run], Run]:
    """A copy of a run as an earlier version left it: without the points that were sent."""

    def copy(run: Run) -> Run:
        path = tmp_path / "earlier" / run.path.name
        shutil.copytree(run.path, path)
        for round in run_directory.checkpoint_rounds(path):
            found = checkpoint.load(run_directory.checkpoint_path(path, round))
            kept = {name: vector for name, vector in found.models.items() if not name.startswith("sent")}
            shutil.rmtree(run_directory.checkpoint_path(path, round))
            checkpoint.save(path, dataclasses.replace(found, models=kept))
        return Run(path, limits=run.limits)

    return copy


@pytest.fixture(scope="session")
def run(make_run: Callable[..., Run]) -> Run:
    """FedAvg: 5 clients, 3 a round, 4 rounds, a perceptron of 310 weights in float64."""
    return make_run()


@pytest.fixture(scope="session")
def runs(run: Run, make_run: Callable[..., Run]) -> list[Run]:
    """FedAvg and FedSAM on the same data."""
    return [run, make_run(algorithm={"name": "fedsam", "rho": 0.1})]
