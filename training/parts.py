"""The words every federated method is written in: what a rule sees, and when it is asked.

A method is three rules: a perturbation (where the descent gradient is taken), a correction (what is added to it)
and a server rule (how the global model moves). Vectors live on the last axis, so the same arithmetic serves one
client (d,) or a stack of clients (C, d). Notation as in the papers: w^t is the point sent, w_k where client k ends,
D_k = w_k - w^t, a_k how many gradients' worth of steps lie in it (K without local momentum), G = -D / (lr a) the
pseudo-gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from landscape.layout import Layout

Vectors = dict[str, Tensor]


@dataclass
class Visit:
    """One client's stay in one round. `state` is a private copy: rules rebind its entries, never write into them."""

    layout: Layout
    start: Tensor  # (d,) the point that was sent
    message: Vectors  # (d,) each: what the server sent beside it
    state: Vectors  # (d,) or (C, d) each: the client's own vectors
    lr: float
    momentum: float  # of local SGD
    steps: Tensor | int  # K; (C, 1) for a stack of clients
    round: int

    @property
    def effective_steps(self) -> Tensor | float:
        return effective_steps(self.steps, self.momentum)


@dataclass(frozen=True)
class Report:
    """What the server knows when a round is over; every mean is over the participants."""

    start: Tensor  # (d,) the point that was sent
    displacement: Tensor  # (d,) D = sum p_k D_k
    pseudo_gradient: Tensor  # (d,) G = sum p_k (w^t - w_k) / (lr a_k)
    effective_steps: float  # sum p_k a_k
    uploads: Vectors  # sum p_k of everything else that was sent up
    changes: Vectors  # sum over participants of (new - old) of each client vector, unweighted
    clients: int  # N, all there are
    lr: float
    round: int

    @property
    def mean_model(self) -> Tensor:
        return self.start + self.displacement


@dataclass(frozen=True)
class Rule:
    """Hooks with neutral answers; a rule overrides the few that its method needs."""

    client_vectors: ClassVar[tuple[str, ...]] = ()  # created as zeros at first participation
    down: ClassVar[int] = 0  # vectors sent to a participant beside the model
    up: ClassVar[int] = 0  # vectors sent back beside the model

    def server_init(self, w: Tensor) -> Vectors:
        """The server's own vectors before the first round."""
        return {}

    def message(self, server: Vectors) -> Vectors:
        """What of them is broadcast."""
        return {}

    def finish(self, visit: Visit, w: Tensor) -> Vectors:
        """The client's new vectors after local training ended at w."""
        return {}

    def upload(self, visit: Visit, w: Tensor) -> Vectors:
        """What the client sends beside its model."""
        return {}

    def update(self, server: Vectors, report: Report) -> Vectors:
        """The server's new vectors after a round."""
        return {}


@dataclass(frozen=True)
class Perturbation(Rule, ABC):
    """e in g~ = gradient(w + e). None means g~ = gradient(w), to the bit."""

    gradients: ClassVar[int] = 0  # gradient evaluations per step before the descent gradient

    @abstractmethod
    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        """The perturbation at w; `gradient` is the plain one there if `gradients` asks for it."""


@dataclass(frozen=True)
class Correction(Rule, ABC):
    """u, the direction of the local step, from the descent gradient g~."""

    needs_gradient: ClassVar[bool] = False  # whether `plain`, the gradient at w itself, is asked for

    @abstractmethod
    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, visit: Visit) -> Tensor:
        """The direction u at w."""


@dataclass(frozen=True)
class Server(Rule, ABC):
    """How the global model moves from w^t to w^{t+1}."""

    def start(self, w: Tensor, server: Vectors) -> Tensor:
        """The point that is sent; the model itself unless the method looks ahead."""
        return w

    @abstractmethod
    def step(self, w: Tensor, server: Vectors, report: Report) -> Tensor:
        """w^{t+1} from w^t, the server's updated vectors and the report of round t."""


@dataclass(frozen=True)
class Method:
    """A named method: its three rules, and where they come from."""

    name: str
    perturbation: Perturbation
    correction: Correction
    server: Server
    paper: str
    notes: str = field(default="", compare=False)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return (self.perturbation, self.correction, self.server)

    @property
    def client_vectors(self) -> tuple[str, ...]:
        return tuple(name for rule in self.rules for name in rule.client_vectors)

    @property
    def gradients_per_step(self) -> int:
        """Gradient evaluations of one local step."""
        return 1 + max(self.perturbation.gradients, int(self.correction.needs_gradient))

    @property
    def traffic(self) -> tuple[int, int]:
        """Model-sized vectors per participant and round, down and up."""
        return 1 + sum(rule.down for rule in self.rules), 1 + sum(rule.up for rule in self.rules)

    def server_init(self, w: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.server_init(w).items()}

    def message(self, server: Vectors) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.message(server).items()}

    def finish(self, visit: Visit, w: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.finish(visit, w).items()}

    def upload(self, visit: Visit, w: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.upload(visit, w).items()}

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
