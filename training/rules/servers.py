"""How the server moves the global model, given what the round brought back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from training.rules.base import Rule
from training.rules.context import RoundReport
from training.rules.vectors import Vectors
from training.settings import Decay, Positive, settings


class Server(Rule, ABC):
    """How the global model moves from w^t to w^{t+1}."""

    probes: ClassVar[bool] = False  # whether the cohort first trains from w^t, only to find the point to send

    def choose_sent_point(self, w: Tensor, server: Vectors) -> Tensor:
        """Choose the point that is sent: the model itself, unless the method looks ahead."""
        return w

    def choose_sent_point_after(self, w: Tensor, server: Vectors, probe: RoundReport) -> Tensor:
        """Choose the point that is sent, where `probes`: after a first exchange from w^t."""
        raise NotImplementedError

    @abstractmethod
    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        """Compute w^{t+1} from w^t, the server's updated vectors and the report of round t."""


@settings
class Mean(Server):
    """w + eta_g D (FedAvg, McMahan et al. 2017)."""

    eta_g: Positive = Field(default=1.0, description="rate of the server")

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w + self.eta_g * report.displacement


@settings
class Momentum(Server):
    """m <- beta m + D, w + eta_g m (FedAvgM, Hsu et al. 2019)."""

    beta: Decay = Field(default=0.9, description="decay of the momentum m")
    eta_g: Positive = Field(default=1.0, description="rate of the server")
    damped: bool = Field(
        default=False,
        description="m <- beta m + (1 - beta) D, as in MOON's code; steps are then 1 / (1 - beta) times smaller",
    )

    def init_server(self, w: Tensor) -> Vectors:
        return {"m": torch.zeros_like(w)}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        share = 1 - self.beta if self.damped else 1.0
        return {"m": self.beta * server["m"] + share * report.displacement}

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w + self.eta_g * server["m"]


@settings
class Adam(Server):
    """m <- b1 m + (1 - b1) D, v <- b2 v + (1 - b2) D^2, w + eta_g m / (sqrt(v) + tau) (Reddi et al. 2021).

    v starts at tau^2 and nothing is bias-corrected, as in the paper; public codes disagree on both.
    """

    eta_g: Positive = Field(default=0.01, description="rate of the server")
    b1: Decay = Field(default=0.9, description="decay of the mean displacement m")
    b2: Decay = Field(default=0.99, description="decay of the mean square v")
    tau: Positive = Field(default=1e-3, description="added to sqrt(v), and its value at the start")

    def init_server(self, w: Tensor) -> Vectors:
        return {"m": torch.zeros_like(w), "v": torch.full_like(w, self.tau**2)}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        D = report.displacement
        return {
            "m": self.b1 * server["m"] + (1 - self.b1) * D,
            "v": self.b2 * server["v"] + (1 - self.b2) * D.square(),
        }

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w + self.eta_g * server["m"] / (server["v"].sqrt() + self.tau)


@settings
class Adagrad(Server):
    """v <- v + D^2, w + eta_g D / (sqrt(v) + tau) (Reddi et al. 2021, b1 = 0)."""

    eta_g: Positive = Field(default=0.01, description="rate of the server")
    tau: Positive = Field(default=1e-3, description="added to sqrt(v), and its value at the start")

    def init_server(self, w: Tensor) -> Vectors:
        return {"v": torch.full_like(w, self.tau**2)}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"v": server["v"] + report.displacement.square()}

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w + self.eta_g * report.displacement / (server["v"].sqrt() + self.tau)


@settings
class Normalised(Server):
    """w + tau_eff sum p_k D_k / a_k, tau_eff = sum p_k a_k (FedNova, Wang et al. 2020).

    a_k is what K_k local steps add up to, local momentum included (`vectors.effective_steps`); clients that take more
    steps then pull no harder. One scalar, a_k, travels up beside the model. As G = -sum p_k D_k / (lr a_k), the rule is
    one step along it.
    """

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w - report.lr * report.effective_steps * report.pseudo_gradient


@settings
class SubtractDual(Server):
    """mean w_k - sigma, the rule that goes with `Dual` clients (FedDyn, Acar et al. 2021)."""

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return report.mean_model - server["sigma"]


@settings
class LookAhead(Server):
    """Send z = w + lam m; m <- lam m + D, w + m (FedACG, Kim et al. 2024)."""

    lam: Decay = Field(default=0.85, description="decay of the momentum m, and how far to look ahead along it")

    def init_server(self, w: Tensor) -> Vectors:
        return {"m": torch.zeros_like(w)}

    def choose_sent_point(self, w: Tensor, server: Vectors) -> Tensor:
        return w + self.lam * server["m"]

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"m": self.lam * server["m"] + report.displacement}

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w + server["m"]
