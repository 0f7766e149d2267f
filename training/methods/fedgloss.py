"""FedGloSS and NaiveFedGloSS (Caldarola et al. 2025): the server minimises the sharpness of the global loss.

Clients train with `SAM` and `Lagrangian` duals; the server rules here choose the perturbed point that they start from,
and undo the perturbation. Lines are those of the paper's Algorithm 1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from training.rules.context import RoundReport
from training.rules.servers import Server
from training.rules.vectors import Vectors, unit
from training.settings import NonNegative, Positive, settings


@settings
class ServerSharpness(Server):
    """Send w + e, e = rho_s unit(P) with the last round's P = -D; then w <- w - eta_s P - sigma (FedGloSS).

    The perturbation is undone: P is subtracted from w itself. Clients must have `Lagrangian` duals. sigma is updated
    with w_k - w ("model"), as in line 22 and Section 5.2.1 (the constraint is w = w_k; the clients' own duals, line 19,
    start from w + e); with w_k - (w + e) ("sent"), which keeps sigma the mean of the clients' duals; or with "sent"
    divided by S once more ("code"), as the published code does. The three differ only where rho_s > 0.
    """

    rho_s: NonNegative = Field(default=0.15, description="radius of the server's perturbation")
    eta_s: Positive = Field(default=1.0, description="rate of the server")
    dual_from: Literal["model", "sent", "code"] = Field(
        default="model", description="what the clients' models are compared with to update sigma"
    )

    def init_server(self, w: Tensor) -> Vectors:
        ascent = {"ascent": torch.zeros_like(w)}
        return {**ascent, "sigma_before": torch.zeros_like(w)} if self.dual_from == "code" else ascent

    def choose_sent_point(self, w: Tensor, server: Vectors) -> Tensor:
        return w + self.rho_s * unit(server["ascent"]) if self.rho_s else w

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        sigma, before = server["sigma"], server.get("sigma_before")  # the clients' rule has already moved sigma
        if before is not None:
            sigma = before + (sigma - before) / report.participants
            return {"ascent": -report.displacement, "sigma": sigma, "sigma_before": sigma}
        if self.dual_from == "model":
            sigma = sigma - report.participants / report.clients * (report.start - report.model)
        return {"ascent": -report.displacement, "sigma": sigma}

    def step(self, w: Tensor, server: Vectors, report: RoundReport) -> Tensor:
        return w + self.eta_s * report.displacement - server["sigma"]


@settings
class TrueServerSharpness(ServerSharpness):
    """As `ServerSharpness`, with P of the current round: the cohort trains from w first (NaiveFedGloSS).

    Costs twice the traffic and twice the gradients. Both exchanges use the same mini-batches; only the second one
    changes the clients' vectors and the statistics of norm layers.
    """

    probes: ClassVar[bool] = True
    down: ClassVar[int] = 1
    up: ClassVar[int] = 1

    def choose_sent_point_after(self, w: Tensor, server: Vectors, probe: RoundReport) -> Tensor:
        return w - self.rho_s * unit(probe.displacement) if self.rho_s else w
