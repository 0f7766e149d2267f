"""FedLESAM (Fan et al. 2024): climb along the change of the global model since the client last took part."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from landscape.layout import Layout
from training.rules.context import ClientContext, RoundReport
from training.rules.perturbations import Perturbation
from training.rules.vectors import Vectors, unit
from training.settings import NonNegative, settings


@settings
class OldGlobal(Perturbation):
    """e = rho (w_old - w^t) / ||w_old - w^t||, w_old the model that the client was sent last time (FedLESAM).

    One gradient per step. At first participation w_old is w^t itself, so that nothing is perturbed.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("last_sent",)
    rho: NonNegative = Field(default=0.01, description="radius of the perturbation")

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        return {"last_sent": start}

    def euclidean_radius(self, when: ClientContext | RoundReport) -> float | None:
        return self.rho

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        return self.rho * unit(context.state["last_sent"] - context.start) if self.rho else None

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        return {"last_sent": context.start.expand(w.shape)}
