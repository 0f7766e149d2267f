"""AdaBest: corrections that fade while a client is away, and a server that extrapolates (Varno et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.layout import Layout
from training.rules.base import Correction, Server, within
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import Vectors


@dataclass(frozen=True)
class Fading(Correction):
    """u = g~ - mu h_k; afterwards h_k <- h_k / (t - t_k) + w^t - w_k (AdaBest, Varno et al. 2022).

    t_k: the round in which the client last took part; an old h_k fades.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("drift", "last_round")
    mu: float = 0.02

    def __post_init__(self) -> None:
        within("mu", self.mu, "[0, inf)")

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        return {"drift": torch.zeros_like(start), "last_round": start.new_full((1,), -1.0)}

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient - self.mu * context.state["drift"]

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        last = context.state["last_round"]
        faded = context.state["drift"] / (context.round - last)
        return {"drift": faded + context.start - w, "last_round": torch.full_like(last, context.round)}


@dataclass(frozen=True)
class Extrapolated(Server):
    """theta + beta (theta - theta_before), theta the mean of the participants' models (AdaBest, Varno et al. 2022)."""

    beta: float = 0.9

    def __post_init__(self) -> None:
        within("beta", self.beta, "[0, inf)")

    def init_server(self, w: Tensor) -> Vectors:
        return {"theta": w, "theta_before": w}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"theta": report.mean_model, "theta_before": server["theta"]}

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return server["theta"] + self.beta * (server["theta"] - server["theta_before"])
