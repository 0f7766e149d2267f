"""What a rule is: the hooks of perturbations, corrections, server rules and loss terms, and when each is called.

A method (`methods.method`) is a perturbation (where the descent gradient is taken), a correction (what is added to it),
a server rule (how the global model moves) and, for some, a term of the local loss or a local loss of its own. Vectors
live on the last axis, so the same arithmetic serves one client (d,) or a stack of clients (C, d). Notation as in the
papers: w^t is the point sent, w_k where client k ends, D_k = w_k - w^t, a_k the number of gradients in D_k (K without
local momentum), G = -D / (lr a) the pseudo-gradient.

Every rule is made by `training.settings.settings`: its fields are the settings of a recipe's [algorithm].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from landscape.layout import Layout
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import Part, Vectors


class Rule:
    """The hooks that every rule has, with neutral defaults; a rule overrides the few that it needs.

    Vectors have names, and all rules of a method share them: the server's, each client's, those of a message and those
    of an upload.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ()  # names of the vectors that each client keeps
    down: ClassVar[int] = 0  # vectors sent to a participant beside the model
    up: ClassVar[int] = 0  # vectors sent back beside the model

    @property
    def inner(self) -> tuple[Rule, ...]:
        """Rules that this one uses: their hooks are called as well."""
        return ()

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        """Create the vectors of a client that takes part for the first time.

        layout: the tensors of the model.
        start: the point that is sent to the client.
        """
        return {name: torch.zeros_like(start) for name in self.client_vectors}

    def init_server(self, w: Tensor) -> Vectors:
        """Create the server's vectors before the first round, from the initial model w."""
        return {}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        """Choose what is broadcast beside the model w, given the server's vectors."""
        return {}

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        """Compute the client's new vectors after local training ended at w."""
        return {}

    def make_upload(self, context: ClientContext, w: Tensor) -> Vectors:
        """Choose what the client sends beside its model w."""
        return {}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        """Compute the server's new vectors after a round, before the model moves."""
        return {}

    def count_numbers(self, layout: Layout) -> tuple[int, int]:
        """Count the numbers that are sent down and up beside vectors of the model's size."""
        return 0, 0


@dataclass(frozen=True)
class ModelOutput:
    """What a model computes from a batch."""

    outputs: Tensor  # (B, classes) logits, or (B, classes, H, W) where targets are label maps
    features: Tensor | None  # (B, f) what enters the classifier, where a term asks for it
    auxiliary: tuple[Tensor, ...] = ()  # outputs of the auxiliary heads that a network has in training mode

    @classmethod
    def of(cls, returned: Tensor | tuple[Tensor, ...], features: Tensor | None = None) -> ModelOutput:
        """Take what a network returned: the outputs of the main head, or a tuple of them and the auxiliary ones."""
        if isinstance(returned, Tensor):
            return cls(returned, features)
        return cls(returned[0], features, tuple(returned[1:]))

    @property
    def heads(self) -> tuple[Tensor, ...]:
        """The outputs of all heads, the main one first."""
        return (self.outputs, *self.auxiliary)


class LossTerm(Rule, ABC):
    """A term of the local loss: one value per example, from a model's output and the outputs of reference models."""

    features: ClassVar[bool] = False  # whether penultimate features are needed

    @abstractmethod
    def references(self, context: ClientContext) -> Vectors:
        """The reference models by name: parameter vectors that no gradient flows into."""

    @abstractmethod
    def __call__(self, own: ModelOutput, others: Mapping[str, ModelOutput], targets: Tensor) -> Tensor:
        """The values (B,).

        own: the model's output.
        others: the outputs of the reference models on the same batch.
        targets: labels (B,), shares (B, classes) where labels are mixed, or label maps (B, H, W).
        """


class LocalLoss(Rule, ABC):
    """A local loss in the place of the cross-entropy of the network's outputs, and the network that it needs."""

    @abstractmethod
    def adapt_network(self, model: nn.Module, *, classes: int, seed: int) -> nn.Module:
        """Make the network that is trained from the recipe's, before the first round.

        model: the recipe's network, which is left as it is.
        classes: outputs of the network.
        seed: of the run, for the weights of new layers.
        """

    @abstractmethod
    def __call__(
        self, network: nn.Module, inputs: Tensor, targets: Tensor, context: ClientContext, chosen: slice
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss that is differentiated, and the one that is reported as the training loss.

        network: as `adapt_network` made it, with the weights where the gradient is taken.
        inputs, targets: the batch of the step.
        chosen: the examples of the batch that count; random numbers belong to places in the whole batch.
        """

    def summarise(self, network: nn.Module, inputs: Tensor, labels: Tensor) -> Vectors:
        """Compute what a client sends up about its data after local training.

        network: the client's, in eval mode.
        inputs, labels: the client's training examples, not augmented.
        """
        return {}


class GradientFunction(Protocol):
    """Gradients on the batch of one local step; the first call also updates norm layers and the training loss."""

    def __call__(
        self, point: Tensor, loss_term: LossTerm | None = None, half: int | None = None, part: Part = "all"
    ) -> Tensor:
        """Compute the gradient at a point.

        loss_term: the loss to differentiate instead of the local one.
        half: 0 or 1, to use only that half of the batch.
        part: of the network; the gradient is zero outside, and what leads only there is not computed.
        """


class SampleGradient(GradientFunction, Protocol):
    """A gradient function of one client that also knows the cross-entropy at the first point it was called with."""

    loss: float


class Samples(Protocol):
    """Mini-batches that a client uses before its local training; norm layers do not change."""

    def __call__(self, share: float, again: int) -> Iterator[SampleGradient]:
        """Gradient functions on the batches of a random share of the client's examples.

        again: another value draws another share.
        """
