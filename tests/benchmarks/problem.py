"""The problem that every contender solves: a network on CIFAR-sized images, briefly trained.

Contenders in the peers' environment read this file too, so nothing of our package is imported at its top.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.networks import CLASSES, NETWORKS, Network

BATCH = 64  # of every tool that takes batches; the counts are multiples of it, since one peer weights batches equally
FORMATS = {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}
TRAINING_COUNT = 1024
NOISE = 5.0


@dataclass(frozen=True)
class Problem:
    """A trained model and the images to measure it on."""

    model: nn.Module
    inputs: Tensor  # (count, 3, 32, 32)
    targets: Tensor  # (count,)

    @property
    def batches(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(torch.split(self.inputs, BATCH), torch.split(self.targets, BATCH), strict=True))

    def first(self, count: int) -> Problem:
        """The same model on the first images only."""
        return Problem(self.model, self.inputs[:count], self.targets[:count])


def create(folder: Path, count: int, network: str) -> None:
    """Draw images, train the network, and save it and the first `count` images."""
    from landscape.rng import normal, torch_generator

    total = max(count, TRAINING_COUNT)
    coarse = normal((CLASSES, 3, 4, 4), 0, "benchmark prototypes").float()
    prototypes = functional.interpolate(coarse, size=(32, 32), mode="bicubic")
    classes = torch.arange(total) % CLASSES
    inputs = prototypes[classes] + NOISE * normal((total, 3, 32, 32), 0, "benchmark noise").float()
    inputs = (inputs / inputs.std()).contiguous(memory_format=torch.channels_last)
    # a tenth of the labels is drawn at random: the loss stays off zero, and H away from the Gauss-Newton matrix
    wrong = torch.randint(CLASSES, (total,), generator=torch_generator(0, "benchmark labels"))
    targets = torch.where(torch.arange(total) // CLASSES % 10 == 9, wrong, classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = NETWORKS[network].make()
    _train(model, NETWORKS[network], inputs[:TRAINING_COUNT], targets[:TRAINING_COUNT])
    (folder / "network").write_text(network)
    save_file(model.state_dict(), folder / "model.safetensors")
    save_file(
        {"inputs": inputs[:count].contiguous(memory_format=torch.contiguous_format), "targets": targets[:count]},
        folder / "images.safetensors",
    )


def load(folder: Path) -> Problem:
    """The problem that `create` saved."""
    model = NETWORKS[(folder / "network").read_text()].make()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    images = load_file(folder / "images.safetensors")
    return Problem(model.eval(), images["inputs"], images["targets"])


def _train(model: nn.Module, network: Network, inputs: Tensor, targets: Tensor) -> None:
    from landscape.rng import torch_generator

    generator = torch_generator(0, "benchmark order")
    optimizer = torch.optim.SGD(model.parameters(), lr=network.rate, momentum=0.9)
    for _ in range(network.epochs):
        for chosen in torch.split(torch.randperm(len(inputs), generator=generator), BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs[chosen]), targets[chosen])
            torch.autograd.backward(loss)
            optimizer.step()
