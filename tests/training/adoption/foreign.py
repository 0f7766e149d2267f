"""A run of another framework, written as docs/flower/save_models.py writes it: a few KB, made in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

CLIENTS, ROUNDS = 2, 3
DEALT = [[*range(0, 60, 2)], [*range(1, 60, 2)]]  # not in the order of the data, client by client
TOML = """
[adopt]
framework = "Flower 1.40.0"
global_models = "global_{round}.safetensors"
client_models = "client_{client}_{round}.safetensors"
sent_models = "previous"

[data]
name = "tests.training.adoption.foreign:load_data"
mean = [0.0]
std = [1.0]

[model]
name = "tests.training.adoption.foreign:make_net"

[partition]
name = "file"
path = "clients.json"
clients = 2
"""


def make_net(classes: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(8, classes)
    )


def load_data() -> object:
    """60 images for training and 20 for testing, as the network sees them."""
    images = torch.randn(80, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(80) % 3
    return (images[:60], labels[:60]), (images[60:], labels[60:])


def make_state(*key: int) -> dict[str, Tensor]:
    """A state dict that depends on the key; running statistics and their counter are part of it."""
    generator = torch.Generator().manual_seed(int("".join(map(str, (1, *key)))))
    state = {name: torch.randn(one.shape, generator=generator) for name, one in make_net().state_dict().items()}
    state["1.running_var"] = state["1.running_var"].abs() + 0.1
    return state | {"1.num_batches_tracked": torch.tensor(7)}


def write_run(folder: Path, toml: str = TOML) -> Path:
    """Write global_ROUND.safetensors, client_CLIENT_ROUND.safetensors, clients.json and adopt.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    for round in range(ROUNDS + 1):
        save_file(make_state(round), folder / f"global_{round}.safetensors")
        for client in range(CLIENTS if round else 0):
            save_file(make_state(round, client), folder / f"client_{client}_{round}.safetensors")
    (folder / "clients.json").write_text(json.dumps(DEALT))
    (folder / "adopt.toml").write_text(toml)
    return folder
