"""The rounds that every framework computes: networks, sizes and examples, in plain torch.

Every client takes part in every round: what is measured does not depend on how many others there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tests.benchmarks.networks import CLASSES, lenet64

RATE = 0.01  # of plain SGD


def digits_cnn() -> nn.Module:
    """Two padded convolutions of 16 and 32 filters, each with pooling, and a linear layer, for 8 x 8 images."""
    layers = []
    for before, width in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, CLASSES))


@dataclass(frozen=True)
class Rounds:
    """What a round is: so many clients pass once over their examples."""

    make: Callable[[], nn.Module]
    shape: tuple[int, int, int]  # of an example
    clients: int
    examples: int  # of every client
    batch: int
    model: str  # its name in our recipes

    def draw(self, client: int) -> tuple[Tensor, Tensor]:
        """The examples of a client and their labels."""
        generator = torch.Generator().manual_seed(client)
        inputs = torch.randn(self.examples, *self.shape, generator=generator)
        return inputs, torch.randint(CLASSES, (self.examples,), generator=generator)


WORK = {
    "LeNet64": Rounds(lenet64, (3, 32, 32), clients=6, examples=512, batch=64, model="lenet64"),
    "digits CNN": Rounds(digits_cnn, (1, 8, 8), clients=10, examples=14, batch=10, model="digits_cnn"),
}
