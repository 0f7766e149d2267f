"""The processes backend: workers that are started once, kept for the run, and replaced when they die.

Every worker has a pipe of its own. A `concurrent.futures.ProcessPoolExecutor` breaks as a whole when one worker dies,
so that all of them would have to start and import torch again; here the end of a pipe means the end of one worker, and
only its client is trained again. Training is a pure function of what is sent, so the repetition gives the same bits.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

from training.clients.local_training import ClientResult
from training.clients.trainer import LocalTrainer
from training.executors.base import Broadcast, Executor, Participant
from training.executors.worker import SharedVectors, Worker, require_picklable

ATTEMPTS = 4  # workers that may die training one client, or one after the other before they have started
LAST = 4  # clients per worker at the end of a round, which start longest first


class Processes(Executor):
    """Trains clients in worker processes of one thread each.

    Data and vectors are passed in shared memory. A worker that dies is replaced and its client trained again; after
    ATTEMPTS deaths over one client, or of workers that were just starting, `run` raises ConnectionError.

    trainer: trains one client of the run; it is sent to every worker once.
    workers: the number of processes.
    """

    name = "processes"

    def __init__(self, trainer: LocalTrainer, workers: int):
        self._workers: list[Worker] = []
        self._failed_starts = 0  # in a row
        self._shared = SharedVectors()  # of the broadcast
        self.assign(trainer)
        self._workers = [Worker.start() for _ in range(workers)]

    def assign(self, trainer: LocalTrainer) -> None:
        """Train another federation's clients with the same workers, since new ones take seconds to start.

        trainer: trains one client of that federation. ValueError if it cannot be sent to other processes.
        """
        require_picklable(trainer)
        self._drain()
        self._trainer = trainer
        for worker in self._workers:
            worker.has_trainer = False

    def run(self, broadcast: Broadcast, participants: Sequence[Participant]) -> Iterator[ClientResult]:
        self._drain()
        points = {"start": broadcast.start, "statistics": broadcast.statistics}
        self._shared.write({"points": points, "message": broadcast.message})
        queue = deque(self._schedule(participants))
        finished: dict[int, ClientResult | Exception] = {}
        deaths: Counter[int] = Counter()
        for turn in range(len(participants)):
            self._send(queue, broadcast, participants)
            while turn not in finished:
                for index, outcome in self._receive():
                    if isinstance(outcome, Death):
                        deaths[index] += 1
                        client, advice = participants[index].client, "out of memory? Use fewer --workers"
                        outcome.end_run_after(deaths[index], f"while training client {client}", advice)
                        queue.appendleft(index)
                    else:
                        finished[index] = outcome
                self._send(
                    queue, broadcast, participants
                )  # before the result is yielded: no worker waits for the server
            answer = finished.pop(turn)
            if isinstance(answer, Exception):
                raise answer  # only now: of several errors the first in order, as in a serial run
            yield answer

    def close(self) -> None:
        for worker in self._workers:
            worker.process.kill()  # also in the middle of training; workers own nothing that has to be cleaned up
        for worker in self._workers:
            worker.release()

    def _schedule(self, participants: Sequence[Participant]) -> list[int]:
        """Return the indices of the participants in the order in which to start them.

        The last few start longest first, so that no worker begins a long one when the others have nothing left. All
        before them start in order: their results need not wait for each other, and the server adds them up meanwhile.
        """
        trainer = self._trainer

        def count_examples(index: int) -> int:
            client = participants[index].client
            return trainer.count_steps(client) * min(trainer.batch_size, len(trainer.client_indices[client]))

        indices = list(range(len(participants)))
        first = max(len(indices) - LAST * len(self._workers), 0)
        return indices[:first] + sorted(indices[first:], key=count_examples, reverse=True)

    def _send(self, queue: deque[int], broadcast: Broadcast, participants: Sequence[Participant]) -> None:
        """Send the next participants to the workers that train none."""
        for worker in self._workers:
            if queue and worker.ready and worker.index is None:
                index = queue.popleft()
                worker.send(index, broadcast, self._shared.groups, participants[index], self._trainer)

    def _receive(self) -> Iterator[tuple[int, ClientResult | Exception | Death]]:
        """Wait for the workers; yield the indices of participants that have ended, and their results or errors."""
        workers = {worker.pipe: worker for worker in self._workers}
        for pipe in wait(list(workers)):
            worker = workers[pipe]  # type: ignore[index]  # typeshed thinks of sockets as well
            index, outcome = worker.index, self._receive_from(worker)
            if index is not None and outcome is not None:
                yield index, outcome

    def _receive_from(self, worker: Worker) -> ClientResult | Exception | Death | None:
        """Wait for one worker's answer, which is None when it has just started; replace the worker if it is dead."""
        try:
            answer = worker.receive()
        except (EOFError, OSError):
            return self._replace(worker)
        self._failed_starts = 0
        return answer

    def _replace(self, worker: Worker) -> Death:
        death = Death(worker.release())
        self._workers.remove(worker)
        if not worker.ready:
            self._failed_starts += 1
            advice = "in a script, train below `if __name__ == '__main__':`, or use the backend serial"
            death.end_run_after(self._failed_starts, "while starting", advice)
        self._workers.append(Worker.start())
        return death

    def _drain(self) -> None:
        """Drain the results of an aborted round."""
        for worker in [worker for worker in self._workers if worker.index is not None]:
            self._receive_from(worker)


@dataclass(frozen=True)
class Death:
    """The end of a worker process that was still needed."""

    exit_code: int | None

    def end_run_after(self, deaths: int, occasion: str, advice: str) -> None:
        """Raise ConnectionError if as many workers as are tried have died on one occasion."""
        if deaths >= ATTEMPTS:
            raise ConnectionError(f"{deaths} worker processes died {occasion} (exit code {self.exit_code}): {advice}")
