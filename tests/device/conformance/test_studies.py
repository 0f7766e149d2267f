"""Every study on a device has the answers of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from analysis.catalog import STUDIES
from analysis.own_models import open_model
from analysis.subjects import Limits, Run
from tests.analysis.helpers import ask, ask_all
from training import config
from training.engine.run import train

SHORT = {
    "curvature": {"top": 2, "density": 1, "trace": 3, "published": True, "limit": 60},
    "surface": {"steps": 3, "limit": 40},
    "plane": {"models": "clients", "steps": 3, "limit": 40},
    "interpolation": {"steps": 3, "limit": 3, "rounds": "last"},
    "features": {"count": 40, "perplexity": 5},
    "robustness": {"limit": 20, "corruptions": ["fog"], "severities": [1]},
    "local_global": {"limit": 3},  # of each of the twenty clients
    "sharpness": {"limit": 3, "steps": 2},
    "incompatibility": {"limit": 3},
    "personal": {"clients": 2},
}
# t-SNE magnifies rounding, and what counts products or seconds is not a result
LEFT_OUT = ("tsne", "divergence", "products", "seconds", "iterations", "residual", "verified", "node", "weight")


@pytest.fixture(scope="module")
def run(dtype, tmp_path_factory):
    """Three clients of a network with norm layers, trained by a method with a direction of its own."""
    recipe = config.validate(
        {
            "dtype": str(dtype).removeprefix("torch."),
            "data": {"name": "digits"},
            "model": {"name": "tests.training.federations:normed"},
            "partition": {"clients": 20},
            "algorithm": {"name": "fedgloss"},
            "local": {"lr": 0.05, "batch_size": 32},
            "rounds": {"count": 2, "participants": 3},
            "checkpoints": {"every": 1, "keep_locals": "all", "keep_clients": "all"},
        }
    )
    return train(recipe, tmp_path_factory.mktemp("runs"), backend="serial", device="cpu")


@pytest.mark.parametrize("study", sorted(STUDIES))
def test_studies(study, run, device, close, tmp_path):
    subjects = {name: Run(run, limits=Limits(workers=1, device=name)) for name in ("cpu", str(device))}
    found = {}
    for name, subject in subjects.items():
        settings = {**SHORT.get(study, {}), **({"rounds": "last"} if study in LAST else {})}
        found[name] = ask(study, [subject], tmp_path / name, **settings)
    own, other = found[str(device)], found["cpu"]
    assert set(own) == set(other)
    compared = 0
    for variable in other.data_vars:
        values = other[variable].values
        if values.dtype.kind == "f" and not any(word in str(variable) for word in LEFT_OUT):
            assert close(own[variable].values, values, loosely=1e5), variable
            compared += 1
    assert compared or study in ("robustness", "personal")


LAST = ("curvature", "surface", "plane", "sharpness", "local_global", "incompatibility", "sensitivity", "features")


def test_an_answer_tells_its_device(run, device, tmp_path):
    subject = Run(run, limits=Limits(workers=1, device=str(device)))
    answer = ask_all("curvature", [subject], tmp_path, top=1, limit=20, rounds="last")
    assert answer.provenance["device"][0]["type"] == device.type


def test_a_model_of_one_s_own(device, tmp_path, close):
    generator = torch.Generator().manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    inputs = torch.rand(30, 1, 2, 2, generator=generator).numpy()
    np.savez(tmp_path / "data.npz", x_train=inputs, y_train=np.arange(30) % 3, x_test=inputs, y_test=np.arange(30) % 3)
    found = []
    for name in ("cpu", str(device)):
        subject = open_model(
            "tests.device.conformance.test_studies:linear",
            tmp_path / "weights.pt",
            tmp_path / "data.npz",
            out=tmp_path / name,
            limits=Limits(workers=1, device=name),
        )
        found.append(ask("curvature", [subject], tmp_path / name, top=2))
    assert close(found[1]["eigenvalue"].values, found[0]["eigenvalue"].values, loosely=1e5)


def linear(classes: int) -> torch.nn.Module:
    """The network of the test above."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, classes))
