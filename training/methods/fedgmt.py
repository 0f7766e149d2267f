"""FedGMT: duals without a proximal term, and distillation from a moving average of the model (Li et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from landscape.errors import choose, positive
from training.rules.base import LossTerm, ModelOutput, within
from training.rules.context import ClientContext, RoundReport
from training.rules.duals import Duals
from training.rules.loss_terms import divergence
from training.rules.vectors import Vectors


@dataclass(frozen=True)
class DualOnly(Duals):
    """u = g - l_k, without a proximal term; l_k <- l_k - D_k / beta (FedGMT, 2025).

    duals: sigma over the "participants", as the paper is quoted, or over "all" as the code does.
    """

    beta: float = 10.0
    duals: str = "participants"

    def __post_init__(self) -> None:
        positive("beta", self.beta)
        choose("duals", self.duals, ("participants", "all"))

    @property
    def strength(self) -> float:
        return 1 / self.beta

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient - context.state["dual"]

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        if self.duals == "all":
            return super().update_server(server, report)
        return {"sigma": self.beta * report.states["dual"]}


@dataclass(frozen=True)
class EmaDistillation(LossTerm):
    """gamma tau^2 KL(softmax(z_e / tau) || softmax(z / tau)), e^t = ema e^{t-1} + (1 - ema) w^t (FedGMT, 2025)."""

    down: ClassVar[int] = 1
    gamma: float = 1.0
    tau: float = 3.0
    ema: float = 0.95

    def __post_init__(self) -> None:
        within("gamma", self.gamma, "[0, inf)")
        positive("tau", self.tau)
        within("ema", self.ema, "[0, 1)")

    def init_server(self, w: Tensor) -> Vectors:
        return {"ema": w}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"ema": self.ema * server["ema"] + (1 - self.ema) * w}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return self.make_message(report.model, server)

    def references(self, context: ClientContext) -> Vectors:
        return {"ema": context.message["ema"]}

    def __call__(self, own: ModelOutput, others: Mapping[str, ModelOutput], targets: Tensor) -> Tensor:
        return self.gamma * self.tau**2 * divergence(others["ema"].outputs, own.outputs, self.tau)
