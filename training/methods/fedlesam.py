"""FedLESAM: climb along the change of the global model since the client last took part (Fan et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from landscape.layout import Layout
from training.rules.base import Perturbation, within
from training.rules.context import ClientContext
from training.rules.vectors import Vectors, unit


@dataclass(frozen=True)
class OldGlobal(Perturbation):
    """e = rho (w_old - w^t) / ||w_old - w^t||, w_old the model that the client was sent last time (FedLESAM, 2024).

    One gradient per step; none perturbed at first participation, when w_old is w^t itself.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("last_sent",)
    rho: float = 0.01

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        return {"last_sent": start}

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        return self.rho * unit(context.state["last_sent"] - context.start) if self.rho else None

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        return {"last_sent": context.start.expand(w.shape)}
