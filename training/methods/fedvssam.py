"""FedVSSAM: clients climb and descend along a mixture of their gradient and the server's direction d.

Both halves: `MixedSAM` (eq. 14) and `MixedDescent` (eq. 15) on the clients, `Direction` (eq. 16) on the server. The
switches lf, lu and gu turn off one of the three each, as in the paper's ablation.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from training.rules.context import ClientContext, RoundReport
from training.rules.corrections import Correction
from training.rules.perturbations import SAM
from training.rules.servers import Server
from training.rules.vectors import Vectors, mix
from training.settings import Positive, Share, settings


@settings
class MixedSAM(SAM):
    """e = rho v / ||v||, v = (1 - a) d + a g with the server's direction d (FedVSSAM, eq. 14)."""

    a: Share = Field(default=0.1, description="weight of the client's gradient; the server's direction weighs 1 - a")
    lf: bool = Field(default=True, description="climb along the mixture; false: v = g")

    def direction(self, gradient: Tensor, context: ClientContext) -> Tensor:
        return mix(context.message["direction"], gradient, self.a) if self.lf else gradient


@settings
class MixedDescent(Correction):
    """u = (1 - a) d + a g~ with the server's direction d (FedVSSAM, eq. 15)."""

    a: Share = Field(default=0.1, description="weight of the client's gradient; the server's direction weighs 1 - a")
    lu: bool = Field(default=True, description="descend along the mixture; false: u = g~")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return mix(context.message["direction"], gradient, self.a) if self.lu else gradient


@settings
class Direction(Server):
    """d <- (1 - gamma) d + gamma G, w - eta_g lr K d; d is broadcast (FedVSSAM, eq. 16)."""

    down: ClassVar[int] = 1
    gamma: Share = Field(default=0.5, description="weight of the new pseudo-gradient in d")
    eta_g: Positive = Field(default=1.0, description="rate of the server")
    gu: bool = Field(default=True, description="average d over the rounds; false: gamma = 1")

    def init_server(self, w: Tensor) -> Vectors:
        return {"direction": torch.zeros_like(w)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"direction": server["direction"]}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        gamma = self.gamma if self.gu else 1.0
        return {"direction": mix(server["direction"], report.pseudo_gradient, gamma)}

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w - self.eta_g * report.lr * report.effective_steps * server["direction"]
