"""Corrections that treat the head of the network, or its last tensors, unlike the rest: made for personal models."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.errors import positive, whole
from landscape.layout import Layout
from training.rules.base import Correction, Samples, within
from training.rules.context import ClientContext
from training.rules.vectors import Vectors

MOST_PASSES = 50  # over the sample, where FedALA's code goes on for as long as it takes
RECENT = 10  # passes whose losses must have become alike


@dataclass(frozen=True)
class AdaptiveStart(Correction):
    """Local training starts at w_k + (w^t - w_k) * M in the last tensors, at w^t below (FedALA, Zhang et al. 2023).

    M in [0, 1] is learnt on a share of the client's data: M <- clip(M - rate grad * (w^t - w_k), 0, 1), the first time
    until the losses of the last passes have a spread below `threshold`, later for one pass. w_k: where the client ended
    when it last took part; the first time it starts at w^t.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("personal", "mix", "passes")
    tensors: int = 2  # the last weight and bias; the paper's code counts tensors too
    share: float = 0.8
    rate: float = 1.0
    threshold: float = 0.1

    def __post_init__(self) -> None:
        whole("tensors", self.tensors)
        within("share", self.share, "(0, 1]")
        within("rate", self.rate, "[0, inf)")
        positive("threshold", self.threshold)

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        return {
            "personal": start,
            "mix": torch.ones_like(start[self._last(layout)]),
            "passes": start.new_zeros(1),
        }

    def _last(self, layout: Layout) -> slice:
        return slice(layout.entries[-min(self.tensors, len(layout.entries))].start, layout.entries[-1].stop)

    def choose_start(self, context: ClientContext, samples: Samples) -> Tensor:
        last, w = self._last(context.layout), context.start.clone()
        own = context.state["personal"][last]
        gap, M = context.start[last] - own, context.state["mix"]
        if self.rate == 0 or not bool(gap.any()):
            return context.start
        first, losses = not bool(context.state["passes"]), list[float]()
        for _ in range(MOST_PASSES if first else 1):
            for gradient_at in samples(self.share, len(losses)):
                w[last] = own + gap * M
                M = (M - self.rate * gradient_at(w)[last] * gap).clamp(0, 1)
            losses.append(gradient_at.loss)
            if len(losses) > RECENT and statistics.pstdev(losses[-RECENT:]) < self.threshold:
                break
        w[last] = own + gap * M
        context.state["mix"], context.state["passes"] = M, context.state["passes"] + len(losses)
        return w

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        return {"personal": w}
