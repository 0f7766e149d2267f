"""The processes backend: worker processes of this machine that are started once and kept for the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from training.clients.local_training import ClientResult
from training.clients.trainer import LocalTrainer
from training.executors.base import Broadcast, Executor, Participant
from training.executors.pool import TaskSet, yield_in_order
from training.executors.process_pool import ProcessPool
from training.executors.worker import SharedVectors, Worker, require_picklable

LAST = 4  # clients per worker at the end of a round, which start longest first


class Processes(Executor):
    """Trains clients in worker processes of one thread each.

    Data and vectors are passed in shared memory. A worker that dies is replaced and its client trained again, which
    gives the same bits; `run` raises ConnectionError when workers die over and over.

    trainer: trains one client of the run; it is sent to every worker once.
    workers: the number of processes.
    """

    name = "processes"

    def __init__(self, trainer: LocalTrainer, workers: int):
        self._shared = SharedVectors()  # of the broadcast
        require_picklable(trainer)
        self._trainer = trainer
        self.pool = ProcessPool(workers, lambda: Worker.start())

    def assign(self, trainer: LocalTrainer) -> None:
        """Train another federation's clients with the same workers, since new ones take seconds to start.

        trainer: trains one client of that federation. ValueError if it cannot be sent to other processes.
        """
        require_picklable(trainer)
        self.pool.drain()
        self._trainer = trainer
        for worker in self.pool.workers:
            if isinstance(worker, Worker):
                worker.has_trainer = False

    def run(self, broadcast: Broadcast, participants: Sequence[Participant]) -> Iterator[ClientResult]:
        self.pool.drain()  # before the memory is written that the tasks of an aborted round still read
        points = {"start": broadcast.start, "statistics": broadcast.statistics}
        self._shared.write({"points": points, "message": broadcast.message})

        def give(worker: Worker, index: int) -> None:
            worker.send(index, broadcast, self._shared.groups, participants[index], self._trainer)

        yield from yield_in_order(
            self.pool.compute(plan_round(self._trainer, participants, len(self.pool.workers), give))
        )

    def close(self) -> None:
        self.pool.close()


def plan_round(
    trainer: LocalTrainer, participants: Sequence[Participant], workers: int, give: Callable[[Any, int], None]
) -> TaskSet:
    """Plan in which order the participants of a round start.

    The last few start longest first, so that no worker begins a long one when the others have nothing left. All before
    them start in order: their results need not wait for each other, and the server adds them up meanwhile.

    trainer: trains one client of the run.
    participants: of the round.
    workers: how many train at a time.
    give: gives a participant, by its index, to a worker.
    """

    def count_examples(index: int) -> int:
        client = participants[index].client
        return trainer.count_steps(client) * min(trainer.batch_size, len(trainer.client_indices[client]))

    indices = list(range(len(participants)))
    first = max(len(indices) - LAST * workers, 0)
    order = indices[:first] + sorted(indices[first:], key=count_examples, reverse=True)
    return TaskSet(order, give, lambda index: f"training client {participants[index].client}")
