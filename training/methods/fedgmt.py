"""FedGMT (Li et al. 2025a): duals without a proximal term, and distillation from a moving average of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from training.rules.base import LossTerm, ModelOutput
from training.rules.context import ClientContext, RoundReport
from training.rules.corrections import Duals
from training.rules.loss_terms import divergence
from training.rules.vectors import Vectors
from training.settings import Decay, NonNegative, Positive, settings


@settings
class DualOnly(Duals):
    """u = g - l_k, without a proximal term; l_k <- l_k - D_k / beta (FedGMT)."""

    beta: Positive = Field(default=10.0, description="inverse strength of the duals")
    duals: Literal["participants", "all"] = Field(
        default="participants",
        description="whose duals sigma is the mean of: as the paper is quoted, or all, as in its code",
    )

    @property
    def strength(self) -> float:
        return 1 / self.beta

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient - context.state["dual"]

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        if self.duals == "all":
            return super().update_server(server, report)
        return {"sigma": self.beta * report.states["dual"]}


@settings
class EmaDistillation(LossTerm):
    """gamma tau^2 KL(softmax(z_e / tau) || softmax(z / tau)), e^t = ema e^{t-1} + (1 - ema) w^t (FedGMT)."""

    down: ClassVar[int] = 1
    gamma: NonNegative = Field(default=1.0, description="weight of the term")
    tau: Positive = Field(default=3.0, description="temperature of both softmaxes")
    ema: Decay = Field(default=0.95, description="decay of the moving average of the global model")

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
