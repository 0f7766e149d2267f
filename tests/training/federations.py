"""Tiny federations for the tests: seven clients of unequal sizes, float64, and a loss written out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from landscape.rng import numpy_generator
from training.engine.federation import Federation
from training.methods import catalog
from training.methods.method import Method
from training.rules.context import ClientContext, RoundReport
from training.rules.corrections import Proximal
from training.rules.perturbations import Perturbation
from training.rules.servers import Server
from training.rules.vectors import Vectors, unit
from training.settings import settings
from training.testing import CLASSES, HIDDEN, SIZES, close, play
from training.testing import make_federation as federation

__all__ = ["CLASSES", "HIDDEN", "SIZES", "close", "federation", "play"]  # of training.testing, for all tests
NAMES = sorted(catalog.ALGORITHMS)
COMPOSED = [f"{name}+{perturbation}" for name in NAMES for perturbation in ("sam", "asam")]
COMPOSED += [f"{name}+previous_sam" for name in ("fedavg", "scaffold", "fedspeed", "naivefedgloss", "moon")]
PIXELS = 4


def setup(name: str, algorithm: dict[str, Any] | None = None, **tables: Any) -> Federation:
    """A federation of a method with some of its settings."""
    return federation(name, algorithm=algorithm or {}, **tables)


def examples(federation: Federation, chosen: np.ndarray | None = None) -> tuple[Tensor, Tensor]:
    """Training examples as the model sees them without augmentation, all of them by default."""
    data = federation.dataset
    images = data.train_inputs.double() / 255
    inputs = ((images - data.mean[0]) / data.std[0]).flatten(1)
    return (inputs, data.train_targets) if chosen is None else (inputs[chosen], data.train_targets[chosen])


def batches(federation: Federation, client: int, round: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A client's mini-batches in one round, from the key alone: a new order every epoch, a shorter last batch."""
    recipe, own = federation.recipe, federation.client_indices[client]
    pairs = federation.method.name == "perfedavg"  # a step takes two mini-batches
    size, steps = recipe.local.batch_size * (2 if pairs else 1), recipe.local.steps
    epochs = recipe.local.epochs if steps is None else steps
    every = []
    for epoch in range(epochs):
        order = numpy_generator(recipe.seed, "order", round, client, epoch).permutation(own)
        every += [order[start : start + size] for start in range(0, len(own), size)]
    return (examples(federation, chosen) for chosen in every[:steps])


def hidden(w: Tensor, X: Tensor) -> Tensor:
    """The features of the perceptron 4-5-3, its tensors cut from the flat vector by hand."""
    W1, b1 = w[: PIXELS * HIDDEN].view(HIDDEN, PIXELS), w[PIXELS * HIDDEN : PIXELS * HIDDEN + HIDDEN]
    return (X @ W1.T + b1).clamp(min=0)


def scores(w: Tensor, X: Tensor) -> Tensor:
    """Its logits."""
    rest = w[PIXELS * HIDDEN + HIDDEN :]
    W2, b2 = rest[: HIDDEN * CLASSES].view(CLASSES, HIDDEN), rest[HIDDEN * CLASSES :]
    return hidden(w, X) @ W2.T + b2


def loss(w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Its mean cross-entropy."""
    found = scores(w, X)
    return (found.logsumexp(1) - found[torch.arange(len(y)), y]).mean()


def derivative(function: Callable[[Tensor], Tensor], w: Tensor) -> Tensor:
    point = w.clone().requires_grad_()
    return torch.autograd.grad(function(point), point)[0]


def gradient(w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    return derivative(lambda point: loss(point, X, y), w)


def named_weight(d: int) -> Tensor:
    """True on the two weight matrices of the perceptron, False on its biases."""
    places = torch.arange(d)
    return (places < PIXELS * HIDDEN) | ((places >= PIXELS * HIDDEN + HIDDEN) & (places < d - CLASSES))


def normed(classes: int, channels: int, size: int) -> nn.Module:
    """A perceptron with BatchNorm: 'tests.training.federations:normed' in a recipe."""
    inputs = channels * size * size
    layers = [nn.Flatten(), nn.Linear(inputs, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, classes)]
    return nn.Sequential(*layers)


@settings
class Swirl(Perturbation):
    """A made-up ascent that uses what no published one does at once: memory of every step, a message, an upload."""

    client_vectors: ClassVar[tuple[str, ...]] = ("swirl",)
    down: ClassVar[int] = 1
    up: ClassVar[int] = 1
    gradients: ClassVar[int] = 1

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        context.state["swirl"] = 0.5 * context.state["swirl"] + gradient - 0.1 * context.message["tide"]
        return 0.1 * unit(context.state["swirl"])

    def init_server(self, w: Tensor) -> Vectors:
        return {"tide": torch.ones_like(w)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"tide": server["tide"]}

    def make_upload(self, context: ClientContext, w: Tensor) -> Vectors:
        return {"swirls": context.state["swirl"] * context.effective_steps}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"tide": report.uploads["swirls"]}


@settings
class LookAhead(Server):
    """Sends a point ahead of the model."""

    def choose_sent_point(self, w: Tensor, server: Vectors) -> Tensor:
        return w + 0.01 * server["tide"]

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return report.mean_model


def made_up(**tables: Any) -> Federation:
    """A federation whose method uses every hook that a rule has."""
    fed = federation(**tables)
    fed.method = fed.trainer.method = Method("made up", Swirl(), Proximal(), LookAhead(), "")
    return fed


def dropping(classes: int, channels: int, size: int) -> nn.Module:
    """The perceptron of `loss` with dropout."""
    inputs = channels * size * size
    layers = [nn.Flatten(), nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Dropout(0.5), nn.Linear(HIDDEN, classes)]
    return nn.Sequential(*layers)


def unremembering(classes: int, channels: int, size: int) -> nn.Module:
    """A network whose norm layer keeps no running statistics."""
    return nn.Sequential(nn.InstanceNorm2d(channels), nn.Flatten(), nn.Linear(channels * size * size, classes))
