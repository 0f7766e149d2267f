"""Federated training on a device: the same draws, and the same models as on the CPU.

The test device computes with the CPU's kernels in the CPU's order, so there the models are equal to the bit.
"""

from __future__ import annotations

import json

import pytest
import torch

from landscape.runtime.device import CPU
from tests.training.federations import NAMES, federation
from training import config
from training.engine.federation import Federation
from training.engine.run import train
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.personal.client_evaluation import open_subject
from training.personal.evaluation import evaluate
from training.storage import checkpoint, run_directory

MIXED = {"padding": 1, "flip": True, "cutout": 1, "mixup": 0.4}


@pytest.fixture
def pair(device, dtype):
    """The same federation on the CPU and on the device."""

    def make(name="fedavg", **tables):
        tables = {"dtype": str(dtype).removeprefix("torch."), **tables}
        return federation(name, **tables), federation(name, device=str(device), **tables)

    return make


def play(federation, executor=None, rounds=2):
    state, executor = federation.begin(), executor or Serial(federation.trainer)
    for _ in range(rounds):
        state, record, local_models = federation.advance(state, executor)
    return state, record, local_models


def assert_same(own, other, device, close, exact=True):
    """Two rounds ended at the same models, metrics and vectors."""
    exact = exact and device.type == "testdevice"
    for found in (own, other):
        assert {one.device for one in (found[0].w, found[0].statistics, *found[2].values())} == {CPU}
    vectors = [("w", own[0].w, other[0].w), ("statistics", own[0].statistics, other[0].statistics)]
    vectors += [(name, own[0].server[name], other[0].server[name]) for name in other[0].server]
    vectors += [(f"client {client}", own[2][client], other[2][client]) for client in other[2]]
    for name, left, right in vectors:
        assert torch.equal(left, right) if exact else close(left, right, loosely=1e4), name
    assert close(own[1]["test_loss"], other[1]["test_loss"], loosely=1e4)
    assert close(own[1]["train_loss"], other[1]["train_loss"], loosely=1e4)


@pytest.mark.parametrize("name", NAMES)
def test_every_method(name, pair, device, close):
    on_cpu, there = pair(name, local={"momentum": 0.5})
    assert there.trainer.replica.flat.device == device
    # noise that fedcr moves to the device lies there in another order, and products round differently
    assert_same(play(there), play(on_cpu), device, close, exact=name != "fedcr")


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("fedsam", {"model": {"name": "tests.training.federations:normed"}, "augment": MIXED}),
        ("scaffold", {"model": {"name": "tests.training.federations:normed"}, "rounds": {"statistics": "own"}}),
        ("fedavg", {"model": {"name": "tests.training.federations:dropping"}, "local": {"clip": 1.0}}),
        ("fedgloss", {"evaluation": {"personal": True, "clients": True}, "swa": {"start": 0.0, "cycle": 1}}),
        ("fedavg", {"model": {"name": "mlp", "hidden": [5]}, "record": ["gradient_norm"]}),
    ],
)
def test_norm_layers_dropout_augmentation_and_evaluation(name, tables, pair, device, close):
    on_cpu, there = pair(name, sizes=(4, 8, 6, 12), **tables)  # no batch of one, which norm layers refuse
    own, other = play(there), play(on_cpu)
    assert_same(own, other, device, close)
    assert own[1].get("client_accuracies") == other[1].get("client_accuracies")
    assert own[1].get("own_accuracies") == other[1].get("own_accuracies")


def test_a_convolutional_network(device, dtype, close):
    tables = {"data": {"name": "digits"}, "partition": {"clients": 100}, "rounds": {"participants": 2}}
    tables |= {
        "model": {"name": "digits_cnn"},
        "dtype": str(dtype).removeprefix("torch."),
        "algorithm": {"name": "fedsam"},
    }
    on_cpu, there = (Federation(config.validate({**tables, "device": name})) for name in ("cpu", str(device)))
    assert_same(play(there, rounds=1), play(on_cpu, rounds=1), device, close)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedsol"])
def test_stacked_clients(name, pair, device, close):
    on_cpu, there = pair(name)
    own, other = play(there, Stacked(there.trainer)), play(on_cpu, Stacked(on_cpu.trainer))
    assert_same(own, other, device, close)


def test_several_processes_share_the_device(pair, device, close):
    on_cpu, there = pair("scaffold")
    executor = Processes(there.trainer, 2)
    try:
        assert_same(play(there, executor), play(on_cpu), device, close)
    finally:
        executor.close()


def test_a_run_is_the_same_run_and_tells_its_device(device, dtype, tmp_path):
    recipe = config.validate(
        {
            "dtype": str(dtype).removeprefix("torch."),
            "data": {"name": "synthetic", "examples": 60, "test_examples": 20, "classes": 3, "shape": [1, 2, 2]},
            "partition": {"clients": 3},
            "model": {"name": "mlp", "hidden": [5]},
            "local": {"batch_size": 8},
            "rounds": {"count": 2, "participants": 2},
        }
    )
    runs = [train(recipe, tmp_path / name, backend="serial", device=name) for name in ("cpu", str(device))]
    first, second = (checkpoint.load(run_directory.checkpoint_path(run, 2)).models["server"] for run in runs)
    assert runs[0].name == runs[1].name
    assert torch.equal(first, second) if device.type == "testdevice" else torch.allclose(first, second, atol=1e-5)
    about = json.loads((runs[1] / "provenance.json").read_text())["device"]
    assert about["type"] == device.type
    assert {"tf32", "cudnn"} <= set(about)
    assert "device" not in (runs[1] / "config.toml").read_text()
    said: list[str] = []
    longer = recipe.model_copy(update={"rounds": recipe.rounds.model_copy(update={"count": 2})})
    train(longer, tmp_path / str(device), backend="serial", device="cpu", on_message=said.append)
    assert any("begun on" in line for line in said)
    for strategy in ("finetune", "knn"):
        scores = [
            evaluate(open_subject(run, device=name), strategy)
            for run, name in zip(runs, ("cpu", str(device)), strict=True)
        ]
        assert scores[0].clients == scores[1].clients
