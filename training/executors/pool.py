"""A pool of workers that compute tasks: clients to train, pieces of studies, whole runs. This file imports no torch.

A task is a pure function of what it is made of, so where and how often it is computed changes no bit. A worker that
dies is replaced, and its task is given to another; after ATTEMPTS deaths over one task the pool gives up. Where the
workers are is the matter of a subclass: processes of this machine (`process_pool`), or actors of a Ray cluster
(`ray_pool`).
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ATTEMPTS = 4  # workers that may die over one task, or one after the other before they have started
Memory = dict[str, Any]  # what a worker keeps from task to task
Task = Callable[[Memory], object]  # called in the worker; it must be possible to pickle it and what it returns


class WorkerDiedError(Exception):
    """Raised when a worker has ended although it was still needed.

    reason: what is known about its end, such as its exit code.
    blameless: whether its task certainly had nothing to do with it, as when a whole node of a cluster was lost.
    """

    def __init__(self, reason: str, blameless: bool = False):
        super().__init__(reason)
        self.reason, self.blameless = reason, blameless


class Worker(ABC):
    """A worker as the process that gives it tasks sees it.

    ready: whether it has started.
    index: of the task that it computes; None: it computes none.
    """

    ready: bool = False
    index: int | None = None

    @abstractmethod
    def give(self, index: int, task: Task) -> None:
        """Give the worker a task. A dead worker is not an error here; `receive` raises it.

        index: of the task. task: what to compute.
        """

    @abstractmethod
    def receive(self) -> object:
        """Wait for the worker's next answer: a result, an exception, or None when it has just started.

        Raises WorkerDiedError if the worker has died.
        """

    @abstractmethod
    def end(self) -> None:
        """End the worker, even in the middle of a task."""


@dataclass(frozen=True)
class TaskSet:
    """Tasks for a pool; each is known by its index.

    order: the indices, in the order in which to start the tasks.
    give: gives one of the tasks to a worker: (worker, index).
    describe: what a worker does with a task, for a message: "training client 3".
    after: the tasks that must have ended, and whose results the caller must have seen, before a task starts.
    """

    order: Sequence[int]
    give: Callable[[Any, int], None]
    describe: Callable[[int], str]
    after: Mapping[int, Sequence[int]] = field(default_factory=dict)


class Pool(ABC):
    """Workers that are started once, kept, and replaced when they die.

    workers: how many.
    """

    advice = "out of memory? Use fewer --workers"  # when workers die over and over

    def __init__(self, workers: int):
        self.workers: list[Worker] = []
        self._failed_starts = 0  # in a row
        for _ in range(workers):
            self.workers.append(self._start())

    @abstractmethod
    def _start(self) -> Worker:
        """Start a worker; the first thing that it sends says that it is ready."""

    @abstractmethod
    def _wait(self, seconds: float | None) -> Sequence[Worker]:
        """Wait until workers have something to `receive`, or have died; returns them, or none after a timeout."""

    def compute(
        self, tasks: TaskSet, idle: Callable[[], object] = lambda: None, silence: float | None = None
    ) -> Iterator[tuple[int, object]]:
        """Compute tasks; yield the index of each with its result, or the exception that it raised, as they end.

        tasks: what to compute.
        idle: called when nothing has ended for a while. silence: seconds of such a while; None: never.
        Raises ConnectionError when workers die over and over.
        """
        self.drain()
        queue, done = deque(tasks.order), set[int]()
        deaths: Counter[int] = Counter()
        self._fill(queue, done, tasks)
        while len(done) < len(tasks.order):
            ended = []
            for index, outcome in self._receive(idle, silence):
                if isinstance(outcome, WorkerDiedError):
                    deaths[index] += not outcome.blameless
                    self._give_up_after(deaths[index], f"while {tasks.describe(index)}", outcome, self.advice)
                    queue.appendleft(index)
                else:
                    ended.append((index, outcome))
            self._fill(queue, done, tasks)  # before results are yielded: no worker waits for what is done with them
            for index, outcome in ended:
                yield index, outcome
                done.add(index)
            self._fill(queue, done, tasks)

    def drain(self) -> None:
        """Wait for the tasks of an abandoned `compute`, and discard their results."""
        for worker in [worker for worker in self.workers if worker.index is not None]:
            self._receive_from(worker)

    def close(self) -> None:
        """End the workers. The pool cannot be used afterwards."""
        for worker in self.workers:
            worker.end()
        self.workers = []

    def _fill(self, queue: deque[int], done: set[int], tasks: TaskSet) -> None:
        """Give tasks whose turn has come to idle workers."""
        for worker in self.workers:
            if worker.ready and worker.index is None:
                index = next((one for one in queue if done.issuperset(tasks.after.get(one, ()))), None)
                if index is None:
                    return
                queue.remove(index)
                tasks.give(worker, index)

    def _receive(self, idle: Callable[[], object], silence: float | None) -> Iterator[tuple[int, object]]:
        """Wait for the workers; yield the indices of tasks that have ended, and their results or errors."""
        heard = self._wait(silence)
        if not heard:
            idle()
        for worker in heard:
            index, outcome = worker.index, self._receive_from(worker)
            if index is not None:
                yield index, outcome

    def _receive_from(self, worker: Worker) -> object:
        """Wait for one worker's answer; replace the worker if it is dead."""
        try:
            answer = worker.receive()
        except WorkerDiedError as death:
            self._replace(worker, death)
            return death
        self._failed_starts = 0
        return answer

    def _replace(self, worker: Worker, death: WorkerDiedError) -> None:
        self.workers.remove(worker)
        if not worker.ready:
            self._failed_starts += not death.blameless
            advice = "in a script, train below `if __name__ == '__main__':`, or use the backend serial"
            self._give_up_after(self._failed_starts, "while starting", death, advice)
        self.workers.append(self._start())

    @staticmethod
    def _give_up_after(deaths: int, occasion: str, death: WorkerDiedError, advice: str) -> None:
        if deaths >= ATTEMPTS:
            raise ConnectionError(f"{deaths} worker processes died {occasion} ({death.reason}): {advice}")


def yield_in_order(outcomes: Iterator[tuple[int, object]]) -> Iterator[Any]:
    """Yield the results of tasks 0, 1, 2, ... in this order; an exception among them is raised when its turn comes.

    outcomes: indices and results or exceptions, as `Pool.compute` yields them.
    """
    finished: dict[int, object] = {}
    turn = 0
    for index, outcome in outcomes:
        finished[index] = outcome
        while turn in finished:
            answer = finished.pop(turn)
            if isinstance(answer, Exception):
                raise answer  # only now: of several errors the first in order, as in a serial run
            yield answer
            turn += 1


def answer_task(task: Task, memory: Memory) -> object:
    """Compute a task in a worker; an error is returned as an exception that can be sent in every case.

    A ValueError or an OSError keeps its message: the user's mistake, or the system's refusal. Any other error is a
    RuntimeError with the traceback as its text.
    """
    try:
        return task(memory)
    except ValueError as error:
        return ValueError(str(error))
    except OSError as error:
        return OSError(str(error))
    except Exception:
        return RuntimeError(f"a task failed in a worker process:\n{traceback.format_exc()}")


def prepare_worker() -> None:
    """Let this process compute on one thread, as every worker does: the same bits wherever a task is computed."""
    import torch

    from landscape.runtime.memory import keep_freed

    torch.set_num_threads(1)
    keep_freed()
