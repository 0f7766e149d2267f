"""FedGF (Lee & Yoon 2024): clients climb towards the server's own perturbed model, as far as they trust it.

The server (`GlobalAscent`) sends its perturbed model w_g and a trust c; clients (`Interpolated`) use both.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from training.rules.context import ClientContext, RoundReport
from training.rules.perturbations import SAM
from training.rules.servers import Server
from training.rules.vectors import Vectors, unit
from training.settings import Count, NonNegative, NonNegativeOrInfinite, Positive, settings


@settings
class Interpolated(SAM):
    """Gradient at q = c w_g + (1 - c) (w + e), e = rho g / ||g||, w_g the server's perturbed model (FedGF).

    `GlobalAscent` sends w_g and c; for c = 0, as in the first round, this is SAM.
    """

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        e, c = super().__call__(w, gradient, context), context.message["trust"]
        if e is None and not bool(c):
            return None
        return c * (context.message["ascended"] - w) + (1 - c) * (0.0 if e is None else e)


@settings
class GlobalAscent(Server):
    """w + eta_g D; sends w_g = w^{t+1} + rho_g unit(w^t - w^{t+1}) and c beside the model (FedGF).

    c is the share of the last `window` rounds in which the mean drift ||w_k - w^t|| exceeded `threshold`.
    """

    down: ClassVar[int] = 1
    eta_g: Positive = Field(default=1.0, description="rate of the server")
    rho_g: NonNegative = Field(default=0.05, description="radius of the server's perturbation")
    threshold: NonNegativeOrInfinite = Field(
        default=0.2, description="mean drift ||w_k - w^t|| above which a round counts towards the trust c"
    )
    window: Count = Field(default=30, description="how many of the last rounds are counted")

    def init_server(self, w: Tensor) -> Vectors:
        return {"ascended": w, "exceeded": w.new_zeros(self.window), "looked": w.new_zeros(1)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        trust = server["exceeded"].sum() / server["looked"].clamp(1, self.window)
        return {"ascended": server["ascended"], "trust": trust}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        moved = self.eta_g * report.displacement
        exceeded = server["exceeded"].roll(1)
        exceeded[0] = float(report.drift > self.threshold)
        return {
            "ascended": report.model + moved - self.rho_g * unit(moved),
            "exceeded": exceeded,
            "looked": server["looked"] + 1,
        }

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w + self.eta_g * report.displacement
