"""Where the descent gradient is taken: at w, or at a point where the loss is higher."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from training.rules.base import GradientFunction, Rule
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import norm, unit
from training.settings import NonNegative, Whole, settings


class Perturbation(Rule, ABC):
    """e in g~ = gradient(w + e). None means g~ = gradient(w), to the bit."""

    gradients: ClassVar[int] = 0  # gradient evaluations per step before the descent gradient
    batches: ClassVar[int] = 1  # mini-batches that one step takes

    @abstractmethod
    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        """The perturbation e at w.

        gradient: the plain gradient at w, if `gradients` asks for it.
        """

    def euclidean_radius(self, when: ClientContext | RoundReport) -> float | None:
        """||e|| in a round, or for FedFSA of the tensors that it did not choose; None: no Euclidean norm is fixed."""
        return None

    def descend(
        self, w: Tensor, gradient_at: GradientFunction, context: ClientContext, plain: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Compute g~, and the gradient at w itself if it was taken.

        plain: whether the gradient at w must be taken.
        """
        gradient = gradient_at(w) if self.gradients or plain else None
        e = self(w, gradient, context)
        if e is not None:
            return gradient_at(w + e), gradient
        return (gradient_at(w) if gradient is None else gradient), gradient


@settings
class NoPerturbation(Perturbation):
    """e = 0."""

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        return None


@settings
class SAM(Perturbation):
    """e = rho g / ||g||, norm over all parameters together (Foret et al. 2021).

    With warmup the radius grows, rho(t) = rho_start + (rho - rho_start) t / T_s for t = 1, ..., T_s (FedGloSS,
    appendix C.2; its Algorithm 1 counts rounds from 1, so that rho_start itself is never taken).
    """

    gradients: ClassVar[int] = 1
    rho: NonNegative = Field(default=0.05, description="radius of the perturbation")
    warmup: Whole = Field(default=0, description="rounds T_s in which the radius grows from rho_start to rho")
    rho_start: NonNegative = Field(default=0.001, description="radius at the start of the warmup")

    def radius(self, when: ClientContext | RoundReport) -> float:
        """The radius of a round, as a client or the server knows it."""
        t = when.round + 1  # both count rounds from 0
        return self.rho if t >= self.warmup else self.rho_start + (self.rho - self.rho_start) * t / self.warmup

    def euclidean_radius(self, when: ClientContext | RoundReport) -> float | None:
        return self.radius(when)

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        return unit(self.direction(gradient, context)).mul_(self.radius(context))

    def direction(self, gradient: Tensor, context: ClientContext) -> Tensor:
        """The direction of ascent, of any length: the gradient itself, unless a method replaces it."""
        return gradient


@settings
class PreviousSAM(SAM):
    """e = rho g~' / ||g~'||, g~' the descent gradient of the step before; one gradient per step (FedGloSS, Table 6).

    It is FedGloSS's estimate of the sharpness within local training, called SAM with a tilde in the paper, which runs
    it on one client that holds all data. g~' was taken on the mini-batch of the step before, at its perturbed point,
    before any correction. It is the client's own and stays with it from one round to its next, so that with one client
    the first step of a round follows the last step of the round before. The very first step is not perturbed.
    """

    gradients: ClassVar[int] = 0
    client_vectors: ClassVar[tuple[str, ...]] = ("previous_gradient",)

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        return super().__call__(w, context.state["previous_gradient"], context)

    def descend(
        self, w: Tensor, gradient_at: GradientFunction, context: ClientContext, plain: bool
    ) -> tuple[Tensor, Tensor | None]:
        descent, gradient = super().descend(w, gradient_at, context, plain)
        context.state["previous_gradient"] = descent
        return descent, gradient


@settings
class ASAM(Perturbation):
    """e = rho T^2 g / ||T g||, T = |w| + eta on weights and 1 elsewhere (Kwon et al. 2021)."""

    gradients: ClassVar[int] = 1
    rho: NonNegative = Field(default=0.5, description="radius of the perturbation")
    eta: NonNegative = Field(default=0.2, description="added to |w|, so that zero weights are perturbed too")
    scope: Literal["weights", "all"] = Field(
        default="weights",
        description="where T = |w| + eta: in tensors whose name contains 'weight', as in the published code, or in all "
        "tensors, as in SAM code with an `adaptive` flag; the two are on different scales of rho",
    )

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


@settings
class MetaStep(Perturbation):
    """Gradient at w - adapt g(w; B1), taken on a second mini-batch B2 (PerFedAvg, first order, Fallah et al. 2020)."""

    gradients: ClassVar[int] = 1
    batches: ClassVar[int] = 2
    adapt: NonNegative = Field(default=0.01, description="rate of the first step, which is undone after the second")

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        assert gradient is not None
        return -self.adapt * gradient

    def descend(
        self, w: Tensor, gradient_at: GradientFunction, context: ClientContext, plain: bool
    ) -> tuple[Tensor, Tensor | None]:
        first = gradient_at(w, half=0)
        return gradient_at(w - self.adapt * first, half=1), first


PERTURBATIONS: dict[str, type[Perturbation]] = {
    "none": NoPerturbation,
    "sam": SAM,
    "asam": ASAM,
    "previous_sam": PreviousSAM,
}
