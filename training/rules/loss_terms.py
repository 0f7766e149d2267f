"""Losses that compare a model with other models on the same batch: distillation, not-true labels, contrast.

A term returns one value per example. It is added to the cross-entropy of a method's local loss (FedNTD, MOON, FedGMT),
or it is the loss that a perturbation climbs (FedSoL).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from landscape.layout import Layout
from training.rules.base import LossTerm, ModelOutput
from training.rules.context import ClientContext
from training.rules.vectors import Vectors
from training.settings import NonNegative, Positive, settings
from training.tasks.segmentation import IGNORED


@settings
class Distillation(LossTerm):
    """KL(softmax(z_g / tau) || softmax(z / tau)) towards the model that was sent (FedSoL's L_p)."""

    tau: Positive = Field(default=3.0, description="temperature of both softmaxes")

    def references(self, context: ClientContext) -> Vectors:
        return {"sent": context.start}

    def __call__(self, own: ModelOutput, others: Mapping[str, ModelOutput], targets: Tensor) -> Tensor:
        return divergence(others["sent"].outputs, own.outputs, self.tau)


@settings
class NotTrue(LossTerm):
    """beta tau^2 KL(softmax(z_g / tau) || softmax(z / tau)) over the classes that are not the label (FedNTD)."""

    beta: NonNegative = Field(default=1.0, description="weight of the term")
    tau: Positive = Field(default=1.0, description="temperature of both softmaxes")

    def references(self, context: ClientContext) -> Vectors:
        return {"sent": context.start}

    def __call__(self, own: ModelOutput, others: Mapping[str, ModelOutput], targets: Tensor) -> Tensor:
        count, classes, *pixels = own.outputs.shape
        # the label's logit at minus infinity would give 0 * inf: leave it out by index instead
        places = torch.arange(classes - 1, device=targets.device)
        rest = places.view(1, -1, *(1 for _ in pixels)).expand(count, -1, *pixels)
        labels = targets.argmax(dim=1) if targets.is_floating_point() else targets  # mixed labels: the heavier one
        rest = rest + (rest >= labels.unsqueeze(1)).to(rest.dtype)
        ours, theirs = (logits.gather(1, rest) for logits in (own.outputs, others["sent"].outputs))
        valid = labels != IGNORED if pixels else None
        return self.beta * self.tau**2 * divergence(theirs, ours, self.tau, valid)


@settings
class Contrast(LossTerm):
    """-mu log(e^{cos(z, z_glob) / tau} / (e^{cos(z, z_glob) / tau} + e^{cos(z, z_prev) / tau})) on features (MOON).

    z_prev comes from the client's previous model; at first participation from the model that was sent, which makes the
    term mu log 2 without any gradient. z is what enters the classifier, as in FedSoL's experiments; MOON itself puts a
    two-layer projection head of 256 outputs there, which a user's own model can include.
    """

    features: ClassVar[bool] = True
    client_vectors: ClassVar[tuple[str, ...]] = ("previous",)
    mu: NonNegative = Field(default=0.1, description="weight of the term")
    tau: Positive = Field(default=0.5, description="temperature of the cosines")

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        return {"previous": start}

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        return {"previous": w}

    def references(self, context: ClientContext) -> Vectors:
        return {"sent": context.start, "previous": context.state["previous"]}

    def __call__(self, own: ModelOutput, others: Mapping[str, ModelOutput], targets: Tensor) -> Tensor:
        assert own.features is not None
        near, far = (
            functional.cosine_similarity(own.features, _features(others[name]), dim=-1) / self.tau
            for name in ("sent", "previous")
        )
        return self.mu * functional.softplus(far - near)


def divergence(teacher: Tensor, student: Tensor, tau: float, valid: Tensor | None = None) -> Tensor:
    """KL(softmax(teacher / tau) || softmax(student / tau)) per example (B,); where every pixel has logits, their mean.

    teacher, student: (B, classes) or (B, classes, H, W).
    tau: temperature of both.
    valid: (B, H, W) the pixels that count; None: all of them.
    """
    target = torch.log_softmax(teacher / tau, dim=1)
    found = torch.log_softmax(student / tau, dim=1)
    each = (target.exp() * (target - found)).sum(dim=1)
    if each.ndim == 1:
        return each
    weights = torch.ones_like(each) if valid is None else valid.to(each.dtype)
    return (each * weights).flatten(1).sum(dim=1) / weights.flatten(1).sum(dim=1).clamp(min=1.0)


def _features(output: ModelOutput) -> Tensor:
    assert output.features is not None
    return output.features
