"""The one problem that every contender solves: LeNet64 on CIFAR-sized images, briefly trained.

Contenders in the peers' environment read this file too, so nothing of our package is imported at its top.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

BATCH = 64  # of every tool that takes batches; the counts are multiples of it, since one peer weights batches equally
CLASSES = 10
FORMATS = {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}
TRAINING_COUNT = 1024
# With these the six largest eigenvalues, 41 29 22 20 17 15, are those of the same network trained on 10,000 images
# of CIFAR-10 until the loss is 0.6 (43 29 27 22 19 15), so that solvers need as many steps as on real data.
EPOCHS = 4
NOISE = 5.0


@dataclass(frozen=True)
class Problem:
    """A trained model and the images to measure it on."""

    model: nn.Sequential
    inputs: Tensor  # (count, 3, 32, 32)
    targets: Tensor  # (count,)

    @property
    def batches(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(torch.split(self.inputs, BATCH), torch.split(self.targets, BATCH), strict=True))

    def first(self, count: int) -> Problem:
        """The same model on the first images only."""
        return Problem(self.model, self.inputs[:count], self.targets[:count])


def lenet64() -> nn.Sequential:
    """The CNN of the federated-learning papers: 797,962 parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1600, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, CLASSES),
    )


def create(folder: Path, count: int) -> None:
    """Draw images, train, and save the model and the first `count` images."""
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
        model = lenet64()
    _train(model, inputs, targets, torch_generator(0, "benchmark order"))
    save_file(model.state_dict(), folder / "model.safetensors")
    save_file(
        {"inputs": inputs[:count].contiguous(memory_format=torch.contiguous_format), "targets": targets[:count]},
        folder / "images.safetensors",
    )


def load(folder: Path) -> Problem:
    """The problem that `create` saved."""
    model = lenet64()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    images = load_file(folder / "images.safetensors")
    return Problem(model.eval(), images["inputs"], images["targets"])


def _train(model: nn.Module, inputs: Tensor, targets: Tensor, generator: torch.Generator) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in range(EPOCHS):
        for chosen in torch.split(torch.randperm(len(inputs), generator=generator), BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs[chosen]), targets[chosen])
            torch.autograd.backward(loss)
            optimizer.step()
