"""FedGF: clients climb towards the server's own perturbed model, as far as they trust it (Lee and Yoon 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from landscape.errors import positive, whole
from training.rules.base import Server, within
from training.rules.context import ClientContext, RoundReport
from training.rules.perturbations import SAM
from training.rules.vectors import Vectors, unit


@dataclass(frozen=True)
class Interpolated(SAM):
    """Gradient at q = c w_g + (1 - c) (w + e), e = rho g / ||g||, w_g the server's perturbed model (FedGF, 2024).

    `GlobalAscent` sends w_g and c; for c = 0, as in the first round, this is SAM.
    """

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        e, c = super().__call__(w, gradient, context), context.message["trust"]
        if e is None and not bool(c):
            return None
        return c * (context.message["ascended"] - w) + (1 - c) * (0.0 if e is None else e)


@dataclass(frozen=True)
class GlobalAscent(Server):
    """w + eta_g D; sends w_g = w^{t+1} + rho_g unit(w^t - w^{t+1}) and c beside the model (FedGF, Lee & Yoon 2024).

    c is the share of the last `window` rounds in which the mean drift ||w_k - w^t|| exceeded `threshold`.
    """

    down: ClassVar[int] = 1
    eta_g: float = 1.0
    rho_g: float = 0.05
    threshold: float = 0.2
    window: int = 30

    def __post_init__(self) -> None:
        positive("eta_g", self.eta_g)
        within("rho_g", self.rho_g, "[0, inf)")
        within("threshold", self.threshold, "[0, inf]")
        whole("window", self.window)

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
