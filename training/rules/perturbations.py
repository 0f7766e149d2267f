"""Where the descent gradient is taken: at w, or at a point where the loss is higher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.errors import choose
from training.rules.base import GradientFunction, Perturbation, within
from training.rules.context import ClientContext
from training.rules.vectors import norm, unit


@dataclass(frozen=True)
class NoPerturbation(Perturbation):
    """e = 0."""

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        return None


@dataclass(frozen=True)
class SAM(Perturbation):
    """e = rho g / ||g||, norm over all parameters together (Foret et al. 2021).

    warmup: rounds T_s in which the radius grows, rho(t) = rho_start + (rho - rho_start) t / T_s for t = 1, ..., T_s
    (FedGloSS, appendix C.2; its Algorithm 1 counts rounds from 1, so that rho_start itself is never taken).
    """

    gradients: ClassVar[int] = 1
    rho: float = 0.05
    warmup: int = 0
    rho_start: float = 0.001

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")
        within("rho_start", self.rho_start, "[0, inf)")
        within("warmup", self.warmup, "[0, inf)")

    def radius(self, context: ClientContext) -> float:
        t = context.round + 1  # visits count rounds from 0
        return self.rho if t >= self.warmup else self.rho_start + (self.rho - self.rho_start) * t / self.warmup

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        return self.radius(context) * unit(self.direction(gradient, context))

    def direction(self, gradient: Tensor, context: ClientContext) -> Tensor:
        """Where to climb; the gradient itself unless a method knows better."""
        return gradient


@dataclass(frozen=True)
class ASAM(Perturbation):
    """e = rho T^2 g / ||T g||, T = |w| + eta on weights and 1 elsewhere (Kwon et al. 2021).

    scope: "weights" as in the published code, tensors whose name contains "weight"; or "all", T = |w| + eta on
    every tensor, as SAM code with an `adaptive` flag does. The two are on different scales of rho.
    """

    gradients: ClassVar[int] = 1
    rho: float = 0.5
    eta: float = 0.2
    scope: str = "weights"

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")
        within("eta", self.eta, "[0, inf)")
        choose("scope", self.scope, ("weights", "all"))

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        T = torch.ones_like(w)
        for entry in context.layout.entries:
            if self.scope == "all" or "weight" in entry.name:  # by the name, so norm layers' scales count as well
                context.layout.view(T, entry).copy_(context.layout.view(w, entry).abs() + self.eta)
        length = norm(T * gradient)
        return self.rho * T.square() * gradient / torch.where(length > 0, length, 1.0)


@dataclass(frozen=True)
class MetaStep(Perturbation):
    """Gradient at w - adapt g(w; B1), taken on a second mini-batch B2 (PerFedAvg, first order, Fallah et al. 2020)."""

    gradients: ClassVar[int] = 1
    batches: ClassVar[int] = 2
    adapt: float = 0.01

    def __post_init__(self) -> None:
        within("adapt", self.adapt, "[0, inf)")

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        assert gradient is not None
        return -self.adapt * gradient

    def descend(
        self, w: Tensor, gradient_at: GradientFunction, context: ClientContext, plain: bool
    ) -> tuple[Tensor, Tensor | None]:
        first = gradient_at(w, half=0)
        return gradient_at(w - self.adapt * first, half=1), first


PERTURBATIONS: dict[str, type[Perturbation]] = {"none": NoPerturbation, "sam": SAM, "asam": ASAM}
