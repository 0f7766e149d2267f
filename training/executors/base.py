"""What an executor is: it trains the clients of a round and hands their results back in order.

`serial` and `processes` agree to the bit, because each client is always trained on one thread. `vmap` computes the
same steps for all clients at once and agrees up to rounding (about 1e-12 relative per step in float64).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from training.clients.local_training import ClientResult
from training.rules.vectors import Vectors, move


@dataclass(frozen=True)
class Broadcast:
    """What the server sends to every participant of a round."""

    start: Tensor  # (d,) the point from which local training starts
    message: Vectors  # (d,) each: what the method sends beside it
    statistics: Tensor  # (b,) running statistics of norm layers, empty if there are none
    lr: float  # local learning rate of this round
    round: int  # counted from zero

    def to(self, device: torch.device) -> Broadcast:
        """The same broadcast with its vectors on a device."""
        message = move(self.message, device)
        return replace(self, start=self.start.to(device), message=message, statistics=self.statistics.to(device))


@dataclass(frozen=True)
class Participant:
    """One participant of a round and the vectors that it keeps from round to round."""

    client: int
    state: Mapping[str, Tensor]  # (d,) each; perhaps on the disk until it is asked for


class Executor(ABC):
    """Trains the clients of one round after the other.

    name: the backend's name in recipes, on the command line and in a run's provenance.
    """

    name: ClassVar[str]

    @abstractmethod
    def run(self, broadcast: Broadcast, participants: Sequence[Participant]) -> Iterator[ClientResult]:
        """Train every participant and yield the results in their order.

        broadcast: what every participant receives.
        participants: the clients to train. If several fail, the error of the first one is raised, as in a serial run.
        """

    def close(self) -> None:  # noqa: B027  (most executors have nothing to release)
        """Release processes and shared memory. The executor cannot be used afterwards."""
