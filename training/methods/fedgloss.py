"""Sharpness of the global loss, minimised by the server: FedGloSS, and what it approximates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.errors import choose, positive
from training.rules.base import Server, within
from training.rules.context import RoundReport
from training.rules.vectors import Vectors, unit


@dataclass(frozen=True)
class ServerSharpness(Server):
    """Send w + rho_s unit(P) with the last round's P = -D; then w - eta_s P - sigma (FedGloSS, Caldarola et al. 2025).

    The perturbation is taken back: P is subtracted from w itself. Goes with `Lagrangian` clients.
    dual_from  what sigma is updated with. "model": w_k - w, as the paper has it in line 22 of Algorithm 1 and in
               Section 5.2.1 (its constraint is w = w_k; the clients' own duals, line 19, start from w + e).
               "sent": w_k - (w + e), which keeps sigma the mean of the clients' duals. "code": "sent" divided by S
               once more, as the published code does. They differ only where rho_s > 0.
    """

    rho_s: float = 0.15
    eta_s: float = 1.0
    dual_from: str = "model"

    def __post_init__(self) -> None:
        within("rho_s", self.rho_s, "[0, inf)")
        positive("eta_s", self.eta_s)
        choose("dual_from", self.dual_from, ("sent", "model", "code"))

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


@dataclass(frozen=True)
class TrueServerSharpness(ServerSharpness):
    """As `ServerSharpness`, with P of this very round: the cohort trains from w first (NaiveFedGloSS).

    Twice the traffic and twice the work. Both exchanges see the same mini-batches; only the second one counts for the
    clients' memory and for norm layers.
    """

    probes: ClassVar[bool] = True
    down: ClassVar[int] = 1
    up: ClassVar[int] = 1

    def choose_sent_point_after(self, w: Tensor, server: Vectors, probe: RoundReport) -> Tensor:
        return w - self.rho_s * unit(probe.displacement) if self.rho_s else w
