"""FedVSSAM: clients climb and descend along a mixture of their gradient and the server's direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.errors import positive
from training.rules.base import Correction, Server, within
from training.rules.context import ClientContext, RoundReport
from training.rules.perturbations import SAM
from training.rules.vectors import Vectors


@dataclass(frozen=True)
class MixedSAM(SAM):
    """e = rho v / ||v||, v = (1 - a) d + a g with the server's direction d (FedVSSAM, eq. 14). lf = false: v = g."""

    a: float = 0.1
    lf: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        within("a", self.a, "(0, 1]")

    def direction(self, gradient: Tensor, context: ClientContext) -> Tensor:
        return (1 - self.a) * context.message["direction"] + self.a * gradient if self.lf else gradient


@dataclass(frozen=True)
class MixedDescent(Correction):
    """u = (1 - a) d + a g~ with the server's direction d (FedVSSAM, eq. 15). lu = false: u = g~."""

    a: float = 0.1
    lu: bool = True

    def __post_init__(self) -> None:
        within("a", self.a, "(0, 1]")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return (1 - self.a) * context.message["direction"] + self.a * gradient if self.lu else gradient


@dataclass(frozen=True)
class Direction(Server):
    """d <- (1 - gamma) d + gamma G, w - eta_g lr K d; d is broadcast (FedVSSAM, eq. 16). gu = false: gamma = 1."""

    down: ClassVar[int] = 1
    gamma: float = 0.5
    eta_g: float = 1.0
    gu: bool = True

    def __post_init__(self) -> None:
        within("gamma", self.gamma, "(0, 1]")
        positive("eta_g", self.eta_g)

    def init_server(self, w: Tensor) -> Vectors:
        return {"direction": torch.zeros_like(w)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"direction": server["direction"]}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        gamma = self.gamma if self.gu else 1.0
        return {"direction": (1 - gamma) * server["direction"] + gamma * report.pseudo_gradient}

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w - self.eta_g * report.lr * report.effective_steps * server["direction"]
