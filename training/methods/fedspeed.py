"""FedSpeed (Sun et al. 2023a): a gradient step as perturbation, and a mixture of both gradients with duals."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from training.rules.context import ClientContext, RoundReport
from training.rules.corrections import Duals
from training.rules.perturbations import Perturbation
from training.rules.vectors import Vectors, unit
from training.settings import Fraction, NonNegative, Positive, settings


@settings
class GradientStep(Perturbation):
    """e = rho g, not normalised (FedSpeed)."""

    gradients: ClassVar[int] = 1
    rho: NonNegative = Field(default=0.1, description="size of the gradient step")
    normalised: bool = Field(default=False, description="e = rho g / ||g||, as in its code")

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        return self.rho * (unit(gradient) if self.normalised else gradient)


@settings
class QuasiGradient(Duals):
    """u = (1 - a) g + a g~ - l_k + (w - w^t) / lam, l_k <- l_k - D_k / lam (FedSpeed)."""

    needs_gradient: ClassVar[bool] = True
    a: Fraction = Field(default=0.95, description="weight of the perturbed gradient; the plain one weighs 1 - a")
    lam: Positive = Field(default=10.0, description="inverse strength of the duals")
    duals: Literal["participants", "all"] = Field(
        default="participants",
        description="whose duals sigma averages: the paper takes w_k - lam l_k of the participants, its code all",
    )

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
