"""FedSpeed: a gradient step as perturbation, and a mixture of both gradients with duals (Sun et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from landscape.errors import choose, positive
from training.rules.base import Perturbation, within
from training.rules.context import ClientContext, RoundReport
from training.rules.duals import Duals
from training.rules.vectors import Vectors, unit


@dataclass(frozen=True)
class GradientStep(Perturbation):
    """e = rho g, not normalised (FedSpeed, Sun et al. 2023). normalised: e = rho g / ||g||, as its code has it."""

    gradients: ClassVar[int] = 1
    rho: float = 0.1
    normalised: bool = False

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        return self.rho * (unit(gradient) if self.normalised else gradient)


@dataclass(frozen=True)
class QuasiGradient(Duals):
    """u = (1 - a) g + a g~ - l_k + (w - w^t) / lam, l_k <- l_k - D_k / lam (FedSpeed, Sun et al. 2023).

    duals: sigma over the "participants", whose w_k - lam l_k the paper averages, or over "all" as the code does.
    """

    needs_gradient: ClassVar[bool] = True
    a: float = 0.95
    lam: float = 10.0
    duals: str = "participants"

    def __post_init__(self) -> None:
        within("a", self.a, "[0, 1]")
        positive("lam", self.lam)
        choose("duals", self.duals, ("participants", "all"))

    @property
    def strength(self) -> float:
        return 1 / self.lam

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        assert plain is not None
        return super().__call__((1 - self.a) * plain + self.a * gradient, plain, w, context)

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        if self.duals == "all":
            return super().update_server(server, report)
        return {"sigma": self.lam * report.states["dual"]}
