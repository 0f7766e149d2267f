"""What a rule is: the hooks of perturbations, corrections, server rules and loss terms, and when each is called.

A method (`methods.method`) is a perturbation (where the descent gradient is taken), a correction (what is added to it),
a server rule (how the global model moves) and, for some, a term of the local loss. Vectors live on the last axis, so
the same arithmetic serves one client (d,) or a stack of clients (C, d). Notation as in the papers: w^t is the point
sent, w_k where client k ends, D_k = w_k - w^t, a_k the number of gradients in D_k (K without local momentum),
G = -D / (lr a) the pseudo-gradient.

Every rule is made by `training.settings.settings`: its fields are the settings of a recipe's [algorithm].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from landscape.layout import Layout
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import Vectors


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


@dataclass(frozen=True)
class ModelOutput:
    """What a model computes from a batch."""

    outputs: Tensor  # (B, classes) logits
    features: Tensor | None  # (B, f) what enters the classifier, where a term asks for it


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
        targets: labels (B,), or shares (B, classes) where labels are mixed.
        """


class GradientFunction(Protocol):
    """Gradients on the batch of one local step; the first call also updates norm layers and the training loss."""

    def __call__(self, point: Tensor, loss_term: LossTerm | None = None, half: int | None = None) -> Tensor:
        """Compute the gradient at a point.

        loss_term: the loss to differentiate instead of the local one.
        half: 0 or 1, to use only that half of the batch.
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


class Perturbation(Rule, ABC):
    """e in g~ = gradient(w + e). None means g~ = gradient(w), to the bit."""

    gradients: ClassVar[int] = 0  # gradient evaluations per step before the descent gradient
    batches: ClassVar[int] = 1  # mini-batches that one step takes

    @abstractmethod
    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        """The perturbation e at w.

        gradient: the plain gradient at w, if `gradients` asks for it.
        """

    def descend(
        self, w: Tensor, gradient_at: GradientFunction, context: ClientContext, plain: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Compute g~, and the gradient at w itself if it was taken.

        plain: whether the gradient at w must be taken.
        """
        gradient = gradient_at(w) if self.gradients or plain else None
        e = self(w, gradient, context)
        if e is not None:
            return gradient_at(w + e), gradient
        return (gradient_at(w) if gradient is None else gradient), gradient


class Correction(Rule, ABC):
    """u, the direction of the local step, from the descent gradient g~."""

    needs_gradient: ClassVar[bool] = False  # whether `plain`, the gradient at w itself, is asked for

    @abstractmethod
    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        """The direction u at w.

        gradient: g~.
        plain: the gradient at w itself, if `needs_gradient` asks for it.
        """

    def choose_start(self, context: ClientContext, samples: Samples) -> Tensor:
        """Choose where local training starts: the point that was sent, unless a client mixes in its own model.

        samples: mini-batches to learn the mixture on.
        """
        return context.start

    def find_frozen(self, layout: Layout) -> slice | None:
        """Find the coordinates that never move, not even by weight decay."""
        return None


class Server(Rule, ABC):
    """How the global model moves from w^t to w^{t+1}."""

    probes: ClassVar[bool] = False  # whether the cohort first trains from w^t, only to find the point to send

    def choose_sent_point(self, w: Tensor, server: Vectors) -> Tensor:
        """Choose the point that is sent: the model itself, unless the method looks ahead."""
        return w

    def choose_sent_point_after(self, w: Tensor, server: Vectors, probe: RoundReport) -> Tensor:
        """Choose the point that is sent, where `probes`: after a first exchange from w^t."""
        raise NotImplementedError

    @abstractmethod
    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        """Compute w^{t+1} from w^t, the server's updated vectors and the report of round t."""


def within(name: str, value: float, interval: str) -> None:
    """Raise unless the value lies in the interval.

    >>> within("beta", 1.0, "[0, 1)")
    Traceback (most recent call last):
    ValueError: beta must lie in [0, 1), got 1.0
    """
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    if not (above and below):
        raise ValueError(f"{name} must lie in {interval}, got {value}")
