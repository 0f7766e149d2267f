"""The words every federated method is written in: what a rule sees, and when it is asked.

A method is four rules: a perturbation (where the descent gradient is taken), a correction (what is added to it), a
server rule (how the global model moves) and, for some, a term of the local loss. Vectors live on the last axis, so the
same arithmetic serves one client (d,) or a stack of clients (C, d). Notation as in the papers: w^t is the point sent,
w_k where client k ends, D_k = w_k - w^t, a_k how many gradients' worth of steps lie in it (K without local momentum),
G = -D / (lr a) the pseudo-gradient.
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
    """Hooks with neutral answers; a rule overrides the few that its method needs."""

    client_vectors: ClassVar[tuple[str, ...]] = ()
    down: ClassVar[int] = 0  # vectors sent to a participant beside the model
    up: ClassVar[int] = 0  # vectors sent back beside the model

    @property
    def inner(self) -> tuple[Rule, ...]:
        """Rules that this one is made of: their hooks are asked as well."""
        return ()

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        """The client's own vectors when it takes part for the first time and is sent `start`."""
        return {name: torch.zeros_like(start) for name in self.client_vectors}

    def init_server(self, w: Tensor) -> Vectors:
        """The server's own vectors before the first round."""
        return {}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        """What of them is broadcast with the model w."""
        return {}

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        """The client's new vectors after local training ended at w."""
        return {}

    def make_upload(self, context: ClientContext, w: Tensor) -> Vectors:
        """What the client sends beside its model."""
        return {}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        """The server's new vectors after a round."""
        return {}


@dataclass(frozen=True)
class ModelOutput:
    """What a model makes of a batch."""

    outputs: Tensor  # (B, classes) logits
    features: Tensor | None  # (B, f) what enters the classifier, where a term asks for it


class LossTerm(Rule, ABC):
    """A loss per example, from a model's own view of a batch and the views that others have of it."""

    features: ClassVar[bool] = False  # whether penultimate features are needed

    @abstractmethod
    def references(self, context: ClientContext) -> Vectors:
        """The other models, by name: parameter vectors that no gradient flows into."""

    @abstractmethod
    def __call__(self, own: ModelOutput, others: Mapping[str, ModelOutput], targets: Tensor) -> Tensor:
        """Values (B,)."""


class GradientFunction(Protocol):
    """Gradients on the batch of one local step; the first one taken also feeds norm layers and the training loss."""

    def __call__(self, point: Tensor, loss_term: LossTerm | None = None, half: int | None = None) -> Tensor:
        """At a point: of the local loss, or of `loss_term` alone; on the whole batch, or on its half 0 or 1."""


class SampleGradient(GradientFunction, Protocol):
    """A gradient_at of one client that also tells the cross-entropy at its first point."""

    loss: float


class Samples(Protocol):
    """Mini-batches that a client looks at before its local training; norm layers learn nothing from them."""

    def __call__(self, share: float, again: int) -> Iterator[SampleGradient]:
        """Slopes on the batches of a random share of the client's examples, drawn anew for every `again`."""


class Perturbation(Rule, ABC):
    """e in g~ = gradient(w + e). None means g~ = gradient(w), to the bit."""

    gradients: ClassVar[int] = 0  # gradient evaluations per step before the descent gradient
    batches: ClassVar[int] = 1  # mini-batches that one step takes

    @abstractmethod
    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        """The perturbation at w; `gradient` is the plain one there if `gradients` asks for it."""

    def descend(
        self, w: Tensor, gradient_at: GradientFunction, context: ClientContext, plain: bool
    ) -> tuple[Tensor, Tensor | None]:
        """g~, and the gradient at w itself if it was taken; `plain`: it must be."""
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
        """The direction u at w."""

    def choose_start(self, context: ClientContext, samples: Samples) -> Tensor:
        """Where local training starts; at the point that was sent, unless the client mixes in a model of its own."""
        return context.start

    def find_frozen(self, layout: Layout) -> slice | None:
        """Coordinates that never move, not even by weight decay."""
        return None


class Server(Rule, ABC):
    """How the global model moves from w^t to w^{t+1}."""

    probes: ClassVar[bool] = False  # whether the same cohort trains from w^t first, only to show where to start

    def choose_sent_point(self, w: Tensor, server: Vectors) -> Tensor:
        """The point that is sent; the model itself unless the method looks ahead."""
        return w

    def choose_sent_point_after(self, w: Tensor, server: Vectors, probe: RoundReport) -> Tensor:
        """The point that is sent when a first exchange from w^t has brought back `probe`."""
        raise NotImplementedError

    @abstractmethod
    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        """w^{t+1} from w^t, the server's updated vectors and the report of round t."""


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
