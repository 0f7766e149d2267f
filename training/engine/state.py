"""The state of a federation between two rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from training.rules.vectors import Vectors
from training.storage.client_vectors import ClientVectors


@dataclass(frozen=True)
class State:
    """The federation between two rounds: everything that the next round depends on. d parameters, b statistics."""

    round: int  # rounds finished
    w: Tensor  # (d,) the server's model
    statistics: Tensor  # (b,) running statistics of norm layers
    server: Vectors
    clients: ClientVectors = field(default_factory=ClientVectors)  # only those that ever took part
    mean: Tensor | None = None  # (d,) plain mean of the last participants
    sent: Tensor | None = None  # (d,) what was broadcast to them: where their local training began
    sent_statistics: Tensor | None = None  # (b,) likewise
    swa: Tensor | None = None  # (d,) the average of the captured models
    swa_statistics: Tensor | None = None  # (b,) averaged like the models
    captured: int = 0  # models in the SWA average
    # accuracy of each client's latest own model, of those that ever took part, where evaluation.personal asks for it;
    # no checkpoint holds it, since the metrics do: see `client_tests.collect_latest`
    own_accuracies: dict[int, float | None] = field(default_factory=dict)
