"""Where the descent gradient is taken: at w, or at a point where the loss is higher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.layout import Layout
from training.parts import Perturbation, Visit, norm, unit


@dataclass(frozen=True)
class NoPerturbation(Perturbation):
    """e = 0."""

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        return None


@dataclass(frozen=True)
class SAM(Perturbation):
    """e = rho g / ||g||, norm over all parameters together (Foret et al. 2021)."""

    gradients: ClassVar[int] = 1
    rho: float = 0.05

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        return self.rho * unit(gradient)


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

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        T = w.abs() + self.eta
        if self.scope == "weights":
            T = torch.where(named_weight(visit.layout).to(w.device), T, 1.0)
        length = norm(T * gradient)
        scaled = T.square() * gradient / torch.where(length > 0, length, 1.0)
        return self.rho * scaled


def named_weight(layout: Layout) -> Tensor:
    """True where the tensor's name contains "weight": the published code of ASAM goes by the name."""
    mask = layout.__dict__.get("_named_weight")
    if mask is None:
        mask = torch.zeros(layout.size, dtype=torch.bool)
        for entry in layout.entries:
            mask[entry.start : entry.stop] = "weight" in entry.name
        layout.__dict__["_named_weight"] = mask  # a cache, like the layout's own cached properties
    return mask


PERTURBATIONS: dict[str, type[Perturbation]] = {"none": NoPerturbation, "sam": SAM, "asam": ASAM}
