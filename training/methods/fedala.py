"""FedALA (Zhang et al. 2023): each client starts from a learnt mixture of the global model and its own."""

from __future__ import annotations

import statistics
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from landscape.layout import Layout
from training.rules.base import Samples
from training.rules.context import ClientContext
from training.rules.corrections import Correction
from training.rules.vectors import Vectors
from training.settings import Count, NonNegative, Positive, Share, settings

MOST_PASSES = 50  # over the sample; FedALA's code has no limit
RECENT = 10  # passes whose losses must be nearly equal


@settings
class AdaptiveStart(Correction):
    """Local training starts at w_k + (w^t - w_k) * M in the last tensors, at w^t below (FedALA, Zhang et al. 2023).

    M in [0, 1] is learnt on a share of the client's data: M <- clip(M - rate grad * (w^t - w_k), 0, 1), the first time
    until the losses of the last passes have a spread below `threshold`, later for one pass. w_k: where the client ended
    when it last took part; the first time it starts at w^t.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("personal", "mix", "passes")
    tensors: Count = Field(
        default=2, description="how many of the last tensors are mixed; a weight and its bias are two"
    )
    share: Share = Field(default=0.8, description="share of the client's examples that the mixture is learnt on")
    rate: NonNegative = Field(default=1.0, description="learning rate of the mixture; 0: start where the server says")
    threshold: Positive = Field(default=0.1, description="spread of the latest losses below which learning ends")

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
