"""FedSMOO: clients agree on one perturbation by ADMM (Sun et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.errors import choose
from training.rules.base import Perturbation, within
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import Vectors, unit


@dataclass(frozen=True)
class SharedSAM(Perturbation):
    """Clients agree on one perturbation s by ADMM (FedSMOO, Sun et al. 2023).

    v = g - mu_k - s, e = rho v / ||v||, mu_k <- mu_k + e - s; the server sets s = rho unit(mean of mu_k - e_k).
    exchange: "difference" as in the paper, or "dual", mu_k alone, as the authors' code sends it.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("perturbation_dual",)
    down: ClassVar[int] = 1
    up: ClassVar[int] = 1
    gradients: ClassVar[int] = 1
    rho: float = 0.1
    exchange: str = "difference"

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")
        choose("exchange", self.exchange, ("difference", "dual"))

    def init_server(self, w: Tensor) -> Vectors:
        return {"shared_perturbation": torch.zeros_like(w)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"shared_perturbation": server["shared_perturbation"]}

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        mu, s = context.state["perturbation_dual"], context.message["shared_perturbation"]
        e = self.rho * unit(gradient - mu - s)
        context.state["perturbation_dual"], context.scratch["perturbation"] = mu + e - s, e
        return e

    def make_upload(self, context: ClientContext, w: Tensor) -> Vectors:
        mu = context.state["perturbation_dual"]
        last = context.scratch.get("perturbation", 0.0) if self.exchange == "difference" else 0.0
        return {"perturbation_vote": mu - last}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"shared_perturbation": self.rho * unit(report.uploads["perturbation_vote"])}
