"""AdaBest (Varno et al. 2022): corrections that fade while a client is away, and a server that extrapolates.

Clients use `Fading`, the server `Extrapolated`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from landscape.layout import Layout
from training.rules.context import ClientContext, RoundReport
from training.rules.corrections import Correction
from training.rules.servers import Server
from training.rules.vectors import Vectors
from training.settings import NonNegative, settings


@settings
class Fading(Correction):
    """u = g~ - mu h_k; afterwards h_k <- h_k / (t - t_k) + w^t - w_k (AdaBest, Varno et al. 2022).

    t_k is the round in which the client last took part, so that an old h_k fades.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("drift", "last_round")
    mu: NonNegative = Field(default=0.02, description="strength of the correction")

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        return {"drift": torch.zeros_like(start), "last_round": start.new_full((1,), -1.0)}

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient - self.mu * context.state["drift"]

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        last = context.state["last_round"]
        faded = context.state["drift"] / (context.round - last)
        return {"drift": faded + context.start - w, "last_round": torch.full_like(last, context.round)}


@settings
class Extrapolated(Server):
    """theta + beta (theta - theta_before), theta the mean of the participants' models (AdaBest, Varno et al. 2022)."""

    beta: NonNegative = Field(default=0.9, description="how far to extrapolate beyond the mean model")

    def init_server(self, w: Tensor) -> Vectors:
        return {"theta": w, "theta_before": w}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"theta": report.mean_model, "theta_before": server["theta"]}

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return server["theta"] + self.beta * (server["theta"] - server["theta_before"])
