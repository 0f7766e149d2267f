"""The serial backend: one client after the other in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from landscape.runtime.workers import ordered_map
from training.engine.local_training import ClientResult, train_client
from training.engine.state import OWN_STATISTICS
from training.engine.trainer import LocalTrainer
from training.executors.base import Broadcast, Executor, Task
from training.rules.context import ClientContext


class Serial(Executor):
    """Trains one client after the other in this process, on one thread.

    trainer: trains one client of the run.
    """

    name = "serial"

    def __init__(self, trainer: LocalTrainer):
        self.trainer = trainer

    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> Iterator[ClientResult]:
        return ordered_map(lambda task: train_task(self.trainer, broadcast, task), tasks, workers=1)


def train_task(trainer: LocalTrainer, broadcast: Broadcast, task: Task) -> ClientResult:
    """Train the client of one task; the backends `serial` and `processes` both do it with this function.

    trainer: trains one client of the run.
    broadcast: what every participant of the round receives.
    task: the client and its own vectors, which are left as they are.
    """
    context = ClientContext(
        layout=trainer.layout,
        start=broadcast.start,
        message=broadcast.message,
        state=dict(task.state),
        lr=broadcast.lr,
        momentum=trainer.recipe.local.momentum,
        steps=trainer.count_steps(task.client),
        round=broadcast.round,
        seed=trainer.recipe.seed,
        clients=(task.client,),
    )
    if OWN_STATISTICS not in task.state:
        return train_client(trainer, context, task.client, broadcast.statistics)
    result = train_client(trainer, context, task.client, task.state[OWN_STATISTICS])
    return replace(result, state={**result.state, OWN_STATISTICS: result.statistics})
