"""Losses that compare a model with other models on the same batch: distillation, not-true labels, contrast.

A term returns one value per example. It is added to the cross-entropy of a method's local loss (FedNTD, MOON, FedGMT)
or takes its place where a perturbation climbs (FedSoL).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from training.parts import Vectors, Visit


@dataclass(frozen=True)
class Seen:
    """What a model makes of a batch."""

    outputs: Tensor  # (B, classes) logits
    features: Tensor | None  # (B, f) what enters the classifier, where the term asks for it


@dataclass(frozen=True)
class Term(ABC):
    """A loss per example from a model's own view of a batch and the views of others."""

    features: ClassVar[bool] = False  # whether penultimate features are needed

    @abstractmethod
    def references(self, visit: Visit) -> Vectors:
        """The other models, by name: parameter vectors that no gradient flows into."""

    @abstractmethod
    def __call__(self, own: Seen, others: Mapping[str, Seen], targets: Tensor) -> Tensor:
        """Values (B,)."""


@dataclass(frozen=True)
class Distillation(Term):
    """weight * KL(softmax(z_other / tau) || softmax(z / tau)) towards the model that was sent (FedSoL's L_p)."""

    tau: float = 3.0
    weight: float = 1.0

    def references(self, visit: Visit) -> Vectors:
        return {"other": visit.start}

    def __call__(self, own: Seen, others: Mapping[str, Seen], targets: Tensor) -> Tensor:
        return self.weight * divergence(others["other"].outputs, own.outputs, self.tau)


@dataclass(frozen=True)
class EmaDistillation(Term):
    """gamma tau^2 KL towards the server's moving average of global models (FedGMT)."""

    gamma: float = 1.0
    tau: float = 3.0

    def references(self, visit: Visit) -> Vectors:
        return {"ema": visit.message["ema"]}

    def __call__(self, own: Seen, others: Mapping[str, Seen], targets: Tensor) -> Tensor:
        return self.gamma * self.tau**2 * divergence(others["ema"].outputs, own.outputs, self.tau)


@dataclass(frozen=True)
class NotTrue(Term):
    """beta tau^2 KL(softmax(z_g / tau) || softmax(z / tau)) over the classes that are not the label (FedNTD)."""

    beta: float = 1.0
    tau: float = 1.0

    def references(self, visit: Visit) -> Vectors:
        return {"sent": visit.start}

    def __call__(self, own: Seen, others: Mapping[str, Seen], targets: Tensor) -> Tensor:
        classes = own.outputs.shape[-1]
        # the label's logit at minus infinity would give 0 * inf: leave it out by index instead
        rest = torch.arange(classes - 1).expand(len(own.outputs), -1)
        rest = rest + (rest >= targets[:, None]).to(rest.dtype)
        ours, theirs = (logits.gather(1, rest) for logits in (own.outputs, others["sent"].outputs))
        return self.beta * self.tau**2 * divergence(theirs, ours, self.tau)


@dataclass(frozen=True)
class Contrast(Term):
    """-mu log(e^{cos(z, z_glob) / tau} / (e^{cos(z, z_glob) / tau} + e^{cos(z, z_prev) / tau})) on features (MOON).

    z_prev comes from the client's previous model; at first participation from the model that was sent, so that the
    value is mu log 2. FedSoL's variant: penultimate features, no projection head.
    """

    features: ClassVar[bool] = True
    mu: float = 0.1
    tau: float = 0.5

    def references(self, visit: Visit) -> Vectors:
        return {"sent": visit.start, "previous": visit.start + visit.state["previous_drift"]}

    def __call__(self, own: Seen, others: Mapping[str, Seen], targets: Tensor) -> Tensor:
        assert own.features is not None
        near, far = (
            functional.cosine_similarity(own.features, _features(others[name]), dim=-1) / self.tau
            for name in ("sent", "previous")
        )
        return self.mu * functional.softplus(far - near)


def divergence(teacher: Tensor, student: Tensor, tau: float) -> Tensor:
    """KL(softmax(teacher / tau) || softmax(student / tau)) per example."""
    target = torch.log_softmax(teacher / tau, dim=-1)
    found = torch.log_softmax(student / tau, dim=-1)
    return (target.exp() * (target - found)).sum(dim=-1)


def _features(seen: Seen) -> Tensor:
    assert seen.features is not None
    return seen.features
