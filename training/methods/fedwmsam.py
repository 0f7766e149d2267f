"""FedWMSAM (Li et al. 2025b): clients climb and descend along a momentum G_k that is corrected for each of them."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from training.rules.context import ClientContext, RoundReport
from training.rules.corrections import ControlVariate
from training.rules.perturbations import Perturbation
from training.rules.vectors import Vectors, unit
from training.settings import Fraction, NonNegative, settings


def personal_momentum(context: ClientContext) -> Tensor:
    """G_k = Gbar + a / (1 - a) (c - c_k): the server's momentum, corrected towards one client (FedWMSAM)."""
    a = context.message["mix"]
    return context.message["momentum"] + a / (1 - a) * (context.message["global_control"] - context.state["control"])


@settings
class Predicted(Perturbation):
    """e = rho delta / ||delta||, delta = w^t + b G_k - w after b local steps; one gradient per step (FedWMSAM)."""

    rho: NonNegative = Field(default=0.01, description="radius of the perturbation")
    sign: Literal[1, -1] = Field(default=1, description="-1 climbs the other way, as the published optimiser does")

    def euclidean_radius(self, when: ClientContext | RoundReport) -> float | None:
        return self.rho

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        if self.rho == 0:
            return None
        return self.sign * self.rho * unit(context.start + context.step * personal_momentum(context) - w)


@settings
class PersonalMomentum(ControlVariate):
    """u = a g~ + (1 - a) G_k, G_k = Gbar + a / (1 - a) (c - c_k); c_k and c as in SCAFFOLD (FedWMSAM).

    a <- (1 - pace) a + pace clip(mean_k (1 + cos(D_k, Gbar)), 0.1, 0.9). The server can compute c and the cosines from
    the models, so that they need not be sent.
    """

    down: ClassVar[int] = 1  # G_k, made by the server
    up: ClassVar[int] = 0
    a: float = Field(default=0.1, gt=0, lt=1, description="weight of the client's gradient in the first round")
    pace: Fraction = Field(default=0.01, description="how fast a follows the agreement of the clients; 0: a stays")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        a = context.message["mix"]
        return a * gradient + (1 - a) * personal_momentum(context)

    def init_server(self, w: Tensor) -> Vectors:
        return {**super().init_server(w), "momentum": torch.zeros_like(w), "mix": w.new_tensor([self.a])}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {name: server[name] for name in ("global_control", "momentum", "mix")}

    def make_upload(self, context: ClientContext, w: Tensor) -> Vectors:
        moved = unit(w - context.start) * unit(context.message["momentum"])
        return {"agreement": 1 + moved.sum(dim=-1, keepdim=True)}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        agreement = report.uploads["agreement"].clamp(0.1, 0.9)
        mixed = (1 - self.pace) * server["mix"] + self.pace * agreement
        return {**super().update_server(server, report), "momentum": report.pseudo_gradient, "mix": mixed}
