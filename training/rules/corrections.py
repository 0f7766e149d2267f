"""What is added to the descent gradient so that clients do not drift apart, and what has to be remembered for it."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from landscape.layout import Layout
from training.rules.base import Correction
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import Vectors, head
from training.settings import NonNegative, Share, settings


@settings
class Plain(Correction):
    """u = g~."""

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient


@settings
class Proximal(Correction):
    """u = g~ + mu (w - w^t): stay near the model that was sent (FedProx, Li et al. 2020)."""

    mu: NonNegative = Field(default=0.1, description="strength of the pull towards the model that was sent")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient + self.mu * (w - context.start) if self.mu else gradient


@settings
class ControlVariate(Correction):
    """u = g~ - c_k + c; afterwards c_k <- c_k - c - D_k / (lr a_k) and c <- c + (1/N) sum of the changes.

    SCAFFOLD, option II (Karimireddy et al. 2020). a_k is K, or its counterpart where there is local momentum, which
    the paper does without. c stays the mean of all c_k.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("control",)
    down: ClassVar[int] = 1
    up: ClassVar[int] = 1

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient - context.state["control"] + context.message["global_control"]

    def init_server(self, w: Tensor) -> Vectors:
        return {"global_control": torch.zeros_like(w)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"global_control": server["global_control"]}

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        moved = (w - context.start) / (context.lr * context.effective_steps)
        return {"control": context.state["control"] - context.message["global_control"] - moved}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"global_control": server["global_control"] + report.changes["control"] / report.clients}


@settings
class ClientMomentum(Correction):
    """u = a g~ + (1 - a) Gbar, where Gbar is the last round's pseudo-gradient (FedCM, Xu et al. 2021)."""

    down: ClassVar[int] = 1
    a: Share = Field(default=0.1, description="weight of the client's gradient; the server's momentum weighs 1 - a")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return self.a * gradient + (1 - self.a) * context.message["momentum"]

    def init_server(self, w: Tensor) -> Vectors:
        return {"momentum": torch.zeros_like(w)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"momentum": server["momentum"]}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"momentum": report.pseudo_gradient}


@settings
class BodyOnly(Correction):
    """u = g~, but the head stays at its random start: only the body is trained and sent (FedBABU, Oh et al. 2022)."""

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient

    def find_frozen(self, layout: Layout) -> slice | None:
        return head(layout)
