"""The serial backend: one client after the other in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from landscape.runtime.device import CPU
from landscape.runtime.workers import ordered_map
from training.clients.local_training import OWN_STATISTICS, ClientResult, train_client
from training.clients.trainer import LocalTrainer
from training.executors.base import Broadcast, Executor, Participant
from training.rules.context import ClientContext
from training.rules.vectors import move


class Serial(Executor):
    """Trains one client after the other in this process, on one thread.

    trainer: trains one client of the run.
    """

    name = "serial"

    def __init__(self, trainer: LocalTrainer):
        self.trainer = trainer

    def run(self, broadcast: Broadcast, participants: Sequence[Participant]) -> Iterator[ClientResult]:
        sent = broadcast.to(self.trainer.device)
        return ordered_map(lambda one: train_participant(self.trainer, sent, one), participants, workers=1)


def train_participant(trainer: LocalTrainer, broadcast: Broadcast, participant: Participant) -> ClientResult:
    """Train one participant of a round; the backends `serial` and `processes` both use this function.

    trainer: trains one client of the run.
    broadcast: what every participant of the round receives.
    participant: the client and its own vectors, which are left as they are.

    Vectors may be on any device; those of the result are on the CPU.
    """
    broadcast = broadcast.to(trainer.device)
    state = move(participant.state, trainer.device)
    context = ClientContext(
        layout=trainer.layout,
        start=broadcast.start,
        message=broadcast.message,
        state=dict(state),
        lr=broadcast.lr,
        momentum=trainer.recipe.local.momentum,
        steps=trainer.count_steps(participant.client),
        round=broadcast.round,
        seed=trainer.recipe.seed,
        clients=(participant.client,),
    )
    if OWN_STATISTICS not in participant.state:
        return train_client(trainer, context, participant.client, broadcast.statistics).to(CPU)
    own = torch.where(trainer.own_statistics, state[OWN_STATISTICS], broadcast.statistics)
    result = train_client(trainer, context, participant.client, own)
    return replace(result, state={**result.state, OWN_STATISTICS: result.statistics}).to(CPU)
