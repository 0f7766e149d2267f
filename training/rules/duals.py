"""Dual variables: each client remembers how far it was pulled, and the server subtracts the mean of it."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from training.rules.base import Correction
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import Vectors
from training.settings import Positive, PositiveOrInfinite, settings


class Duals(Correction):
    """u = g~ - l_k + alpha (w - w^t); afterwards l_k <- l_k - alpha D_k. Each paper has its own name for alpha.

    The server keeps sigma = (1/N) sum_k l_k / alpha, which `SubtractDual` takes off the mean model.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("dual",)

    @property
    @abstractmethod
    def strength(self) -> float:
        """alpha."""

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient - context.state["dual"] + self.strength * (w - context.start)

    def init_server(self, w: Tensor) -> Vectors:
        return {"sigma": torch.zeros_like(w)}

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        return {"dual": context.state["dual"] - self.strength * (w - context.start)}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        if self.strength == 0:  # no duals at all
            return {}
        return {"sigma": server["sigma"] + report.changes["dual"] / (report.clients * self.strength)}


@settings
class Dual(Duals):
    """u = g~ - l_k + alpha (w - w^t), l_k <- l_k - alpha D_k (FedDyn, Acar et al. 2021).

    alpha -> 0 is not FedAvg: sigma does not vanish with alpha.
    """

    alpha: Positive = Field(default=0.01, description="strength of the pull towards the model that was sent")

    @property
    def strength(self) -> float:
        return self.alpha


@settings
class Lagrangian(Duals):
    """u = g~ - l_k + (w - w^t) / beta, l_k <- l_k - D_k / beta (FedGloSS, FedSMOO)."""

    beta: PositiveOrInfinite = Field(default=10.0, description="inverse strength of the duals; inf: no duals, u = g~")

    @property
    def strength(self) -> float:
        return 1 / self.beta
