"""SiloBN (Andreux et al. 2020): everything is averaged but the running statistics of BatchNorm."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from training.rules.context import ClientContext
from training.rules.corrections import Correction
from training.settings import settings


@settings
class OwnStatistics(Correction):
    """u = g~; every client goes on with the running statistics that it ended its last local training with (SiloBN).

    A client that takes part for the first time begins with the initial ones. The server's model is tested with the
    mean of the participants' statistics. `rounds.statistics = "own"` does the same for any method.
    """

    names: str = Field(
        default="",
        description='part of the names of the statistics that stay; all if empty, "bn.running" as FedDrive\'s code',
    )

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient

    def keeps_statistic(self, name: str) -> bool:
        return self.names in name
