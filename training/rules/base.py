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
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from landscape.layout import Layout

Vectors = dict[str, Tensor]


@dataclass
class ClientContext:
    """One client's stay in one round. `state` is a private copy: rules rebind its entries, never write into them."""

    layout: Layout
    start: Tensor  # (d,) the point that was sent
    message: Vectors  # (d,) each: what the server sent beside it
    state: Vectors  # (d,) or (C, d) each: the client's own vectors
    lr: float
    momentum: float  # of local SGD
    steps: Tensor | int  # K; (C, 1) for a stack of clients
    round: int
    seed: int = 0  # of the run, for rules that draw
    clients: tuple[int, ...] = (0,)  # who this is; several for a stack
    step: int = 0  # local steps taken so far
    scratch: Vectors = field(default_factory=dict)  # like `state`, but forgotten when the context ends

    @property
    def effective_steps(self) -> Tensor | float:
        return effective_steps(self.steps, self.momentum)


@dataclass(frozen=True)
class Report:
    """What the server knows when a round is over; every mean is over the participants."""

    model: Tensor  # (d,) w^t, the server's model
    start: Tensor  # (d,) the point that was sent, w^t unless the method looks ahead
    displacement: Tensor  # (d,) D = sum p_k D_k
    pseudo_gradient: Tensor  # (d,) G = sum p_k (w^t - w_k) / (lr a_k)
    effective_steps: float  # sum p_k a_k
    uploads: Vectors  # sum p_k of everything else that was sent up
    changes: Vectors  # sum over participants of (new - old) of each client vector, unweighted
    states: Vectors  # sum p_k of the participants' new client vectors
    drift: float  # mean ||D_k||, unweighted
    participants: int  # S
    clients: int  # N, all there are
    lr: float
    round: int

    @property
    def mean_model(self) -> Tensor:
        return self.start + self.displacement


@dataclass(frozen=True)
class Rule:
    """Hooks with neutral answers; a rule overrides the few that its method needs."""

    client_vectors: ClassVar[tuple[str, ...]] = ()
    down: ClassVar[int] = 0  # vectors sent to a participant beside the model
    up: ClassVar[int] = 0  # vectors sent back beside the model

    @property
    def inner(self) -> tuple[Rule, ...]:
        """Rules that this one is made of: their hooks are asked as well."""
        return ()

    def client_init(self, layout: Layout, start: Tensor) -> Vectors:
        """The client's own vectors when it takes part for the first time and is sent `start`."""
        return {name: torch.zeros_like(start) for name in self.client_vectors}

    def server_init(self, w: Tensor) -> Vectors:
        """The server's own vectors before the first round."""
        return {}

    def message(self, w: Tensor, server: Vectors) -> Vectors:
        """What of them is broadcast with the model w."""
        return {}

    def finish(self, context: ClientContext, w: Tensor) -> Vectors:
        """The client's new vectors after local training ended at w."""
        return {}

    def upload(self, context: ClientContext, w: Tensor) -> Vectors:
        """What the client sends beside its model."""
        return {}

    def update(self, server: Vectors, report: Report) -> Vectors:
        """The server's new vectors after a round."""
        return {}


@dataclass(frozen=True)
class ModelOutput:
    """What a model makes of a batch."""

    outputs: Tensor  # (B, classes) logits
    features: Tensor | None  # (B, f) what enters the classifier, where a term asks for it


@dataclass(frozen=True)
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

    def __call__(self, point: Tensor, term: LossTerm | None = None, half: int | None = None) -> Tensor:
        """At a point: of the local loss, or of `term` alone; on the whole batch, or on its half 0 or 1."""


class SampleGradient(GradientFunction, Protocol):
    """A gradient_at of one client that also tells the cross-entropy at its first point."""

    loss: float


class Samples(Protocol):
    """Mini-batches that a client looks at before its local training; norm layers learn nothing from them."""

    def __call__(self, share: float, again: int) -> Iterator[SampleGradient]:
        """Slopes on the batches of a random share of the client's examples, drawn anew for every `again`."""


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Correction(Rule, ABC):
    """u, the direction of the local step, from the descent gradient g~."""

    needs_gradient: ClassVar[bool] = False  # whether `plain`, the gradient at w itself, is asked for

    @abstractmethod
    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        """The direction u at w."""

    def enter(self, context: ClientContext, samples: Samples) -> Tensor:
        """Where local training starts; at the point that was sent, unless the client mixes in a model of its own."""
        return context.start

    def frozen(self, layout: Layout) -> slice | None:
        """Coordinates that never move, not even by weight decay."""
        return None


@dataclass(frozen=True)
class Server(Rule, ABC):
    """How the global model moves from w^t to w^{t+1}."""

    probes: ClassVar[bool] = False  # whether the same cohort trains from w^t first, only to show where to start

    def start(self, w: Tensor, server: Vectors) -> Tensor:
        """The point that is sent; the model itself unless the method looks ahead."""
        return w

    def start_after(self, w: Tensor, server: Vectors, probe: Report) -> Tensor:
        """The point that is sent when a first exchange from w^t has brought back `probe`."""
        raise NotImplementedError

    @abstractmethod
    def step(self, w: Tensor, server: Vectors, report: Report) -> Tensor:
        """w^{t+1} from w^t, the server's updated vectors and the report of round t."""


@dataclass(frozen=True)
class Method:
    """A named method: its rules, and where they come from."""

    name: str
    perturbation: Perturbation
    correction: Correction
    server: Server
    paper: str
    term: LossTerm | None = None  # added to the cross-entropy of the local loss
    notes: str = field(default="", compare=False)

    @property
    def slots(self) -> dict[str, Rule]:
        """The rules by the place that they take."""
        three: dict[str, Rule] = {
            "perturbation": self.perturbation,
            "correction": self.correction,
            "server": self.server,
        }
        return three if self.term is None else {**three, "term": self.term}

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(one for rule in self.slots.values() for one in (*rule.inner, rule))

    @property
    def client_vectors(self) -> tuple[str, ...]:
        return tuple(name for rule in self.rules for name in rule.client_vectors)

    @property
    def gradients_per_step(self) -> int:
        """Gradient evaluations of one local step; twice as many where the cohort trains twice."""
        once = 1 + max(self.perturbation.gradients, int(self.correction.needs_gradient))
        return 2 * once if self.server.probes else once

    @property
    def traffic(self) -> tuple[int, int]:
        """Model-sized vectors per participant and round, down and up."""
        return 1 + sum(rule.down for rule in self.rules), 1 + sum(rule.up for rule in self.rules)

    def client_init(self, layout: Layout, start: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.client_init(layout, start).items()}

    def server_init(self, w: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.server_init(w).items()}

    def message(self, w: Tensor, server: Vectors) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.message(w, server).items()}

    def finish(self, context: ClientContext, w: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.finish(context, w).items()}

    def upload(self, context: ClientContext, w: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.upload(context, w).items()}

    def advance(self, w: Tensor, server: Vectors, report: Report) -> tuple[Tensor, Vectors]:
        """The next global model and the server's next vectors; rules update before the model moves."""
        updated = dict(server)
        for rule in self.rules:
            updated.update(rule.update(updated, report))
        return self.server.step(w, updated, report), updated


def effective_steps(K: Tensor | int, momentum: float) -> Tensor | float:
    """a, how many gradients lie in the displacement of K steps: D = -lr a g if every gradient were g.

    K for plain SGD, (K - r (1 - r^K) / (1 - r)) / (1 - r) with momentum r (FedNova, Wang et al. 2020). Dividing by K
    instead would blow up the pseudo-gradients of SCAFFOLD and FedCM by up to 1 / (1 - r).
    """
    r = momentum
    return (K - r * (1 - r**K) / (1 - r)) / (1 - r)


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


def norm(vector: Tensor) -> Tensor:
    """L2 norm over all parameters together, kept as a last axis of length one."""
    length: Tensor = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return length


def unit(vector: Tensor) -> Tensor:
    """v / ||v||, and zero for zero."""
    length = norm(vector)
    return torch.where(length > 0, vector / torch.where(length > 0, length, 1.0), 0.0)


def head(layout: Layout) -> slice:
    """The coordinates of the classifier: the tensors of the layer that comes last."""
    first = min(entry.start for entry in layout.entries if entry.layer == layout.entries[-1].layer)
    return slice(first, layout.entries[-1].stop)
