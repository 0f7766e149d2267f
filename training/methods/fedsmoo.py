"""FedSMOO (Sun et al. 2023b): clients agree on one perturbation by ADMM. Their models have `Lagrangian` duals."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from training.rules.context import ClientContext, RoundReport
from training.rules.perturbations import SAM
from training.rules.vectors import Vectors, unit
from training.settings import NonNegative, settings


@settings
class SharedSAM(SAM):
    """Clients agree on one perturbation s by ADMM (FedSMOO).

    v = g - mu_k - s, e = rho v / ||v||, mu_k <- mu_k + e - s; the server sets s = rho unit(mean of mu_k - e_k).
    With warmup (FedGloSS, Figures 15 to 17, "+wp") rho is SAM's rho(t), on the clients and for the s that the server
    makes of round t's votes; FedGloSS does not say which rho its s has.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("perturbation_dual",)
    down: ClassVar[int] = 1
    up: ClassVar[int] = 1
    rho: NonNegative = Field(default=0.1, description="radius of the perturbation")
    exchange: Literal["difference", "dual"] = Field(
        default="difference",
        description="what clients send: mu_k - e_k, as in the paper, or mu_k alone, as in its code",
    )

    def init_server(self, w: Tensor) -> Vectors:
        return {"shared_perturbation": torch.zeros_like(w)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"shared_perturbation": server["shared_perturbation"]}

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        mu, s = context.state["perturbation_dual"], context.message["shared_perturbation"]
        e = self.radius(context) * unit(gradient - mu - s)
        context.state["perturbation_dual"], context.scratch["perturbation"] = mu + e - s, e
        return e

    def make_upload(self, context: ClientContext, w: Tensor) -> Vectors:
        mu = context.state["perturbation_dual"]
        last = context.scratch.get("perturbation", 0.0) if self.exchange == "difference" else 0.0
        return {"perturbation_vote": mu - last}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"shared_perturbation": self.radius(report) * unit(report.uploads["perturbation_vote"])}
