"""A sound directory with one file of every kind that is read, all of them small."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import torch
import xarray as xr
from safetensors.torch import save_file

from analysis import runner, store
from analysis.store import Answer
from analysis.study import variable
from training import config
from training.engine.run import train
from training.personal import scores

RECIPE: dict[str, Any] = {
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [2]},
    "algorithm": {"name": "feddyn"},
    "partition": {"name": "dirichlet_total", "clients": 5, "alpha": 0.5},
    "local": {"lr": 0.1, "batch_size": 32, "steps": 1},
    "rounds": {"count": 4, "participants": 3},
    "checkpoints": {"every": 2, "keep_locals": "all"},
}
LAST = "round_000004"


class StoppedError(Exception):
    """Training was stopped on the way."""


def make_workspace(folder: Path) -> None:
    """Fill a folder: runs/finished and runs/stopped, recipe.toml, own.{npz, safetensors, pt}, surface.h5, pieces/."""
    finished = _train(folder, "finished")
    _train(folder, "stopped", until=3)
    store.write(finished / "analysis" / "curvature" / "default.h5", make_answer())
    found = tuple(scores.ClientScore(client, 10, 0.5, 0.75) for client in range(3))
    personal = scores.PersonalResult("finetune", 4, "server", {"epochs": 1, "lr": 0.1}, None, "0" * 64, 0, found)
    scores.save(finished / "personal" / "finetune.json", personal)
    (folder / "recipe.toml").write_text(config.dump(config.validate(RECIPE)) + '\n[sweep]\n"local.lr" = [0.1, 0.2]\n')
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(6, 1, 4, 4)).astype(np.float32), np.arange(6) % 3
    np.savez(folder / "own.npz", x_train=inputs, y_train=labels, x_test=inputs[:3], y_test=labels[:3])
    weights = {name: tensor.detach().contiguous() for name, tensor in own_model().state_dict().items()}
    save_file(weights, folder / "own.safetensors")
    torch.save(weights, folder / "own.pt")
    with h5py.File(folder / "surface.h5", "w") as file:
        file["xcoordinates"], file["ycoordinates"] = np.linspace(-1, 1, 5), np.linspace(-1, 1, 4)
        file["train_loss"], file["train_acc"] = rng.random((5, 4)), rng.random((5, 4))
    piece = {"value": variable(("x", "y"), np.arange(12.0).reshape(3, 4), "value"), "name": ("word", ["a", "b"])}
    runner.save_piece(*planned(folder), xr.Dataset(piece))


def _train(folder: Path, name: str, until: int | None = None) -> Path:
    """A run of four rounds under a short name, or one that was stopped after some of them."""

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == until:
            raise StoppedError

    recipe = config.validate(RECIPE)
    out = folder / "runs"
    with contextlib.suppress(StoppedError):
        train(recipe, out, backend="serial", on_round=stop)
    return (out / recipe.slug).rename(out / name)


def planned(folder: Path) -> tuple[Any, Any]:
    """As much of a plan and of its only piece as is needed to keep and find that piece."""
    return SimpleNamespace(digest="0" * 64, folder=folder / "pieces"), SimpleNamespace(name="piece")


def own_model() -> torch.nn.Module:
    """A network of a user's own."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))


def make_answer() -> Answer:
    """An answer of a study with numbers, texts, flags and attributes."""
    data = xr.Dataset(
        {
            "eigenvalue": variable(("round", "rank"), np.arange(15.0).reshape(3, 5), "eigenvalues"),
            "residual": variable(("round", "rank"), np.full((3, 5), 1e-6), "residuals"),
            "converged": variable(("round", "rank"), np.ones((3, 5), dtype=bool), "flags"),
            "loss": variable(("round", "model"), np.ones((3, 2), dtype=np.float32), "loss", "nats"),
            "note": variable("round", ["a", "bc", "déf"], "words"),
            "node": variable(("round", "probe"), np.zeros((3, 2)), "an axis without coordinates"),
        },
        {
            "round": variable("round", [0, 2, 4], "communication round"),
            "model": variable("model", ["server", "mean"], "which global model"),
            "rank": variable("rank", np.arange(1, 6), "rank"),
        },
        {"objective": "train", "examples": 100, "rho": 0.1},
    )
    return Answer("curvature", "default", {"top": 5}, {"inputs": ["x"], "packages": {}}, data)
