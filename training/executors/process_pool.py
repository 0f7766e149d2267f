"""A pool of worker processes on this machine, each with a pipe of its own. This file imports no torch.

A `concurrent.futures.ProcessPoolExecutor` breaks as a whole when one worker dies, so that all of them would have to
start and import torch again; here the end of a pipe means the end of one worker, and only its task is repeated.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Self

from training.executors.parent import end_with_parent, without_main
from training.executors.pool import Memory, Pool, Task, Worker, WorkerDiedError, answer_task, prepare_worker


class ProcessWorker(Worker):
    """A worker process as its parent sees it."""

    def __init__(self, process: BaseProcess, pipe: Connection):
        self.process, self.pipe = process, pipe

    @classmethod
    def start(cls) -> Self:
        """Start a worker process; the first thing that it sends says that it is ready."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()  # so that the pipe ends when the worker dies
        return cls(process, ours)

    def give(self, index: int, task: Task) -> None:
        self.index = index
        with suppress(ConnectionError):
            self.pipe.send(task)

    def receive(self) -> object:
        try:
            answer: object = self.pipe.recv()
        except (EOFError, OSError):
            raise WorkerDiedError(f"exit code {self._release()}") from None
        self.ready, self.index = True, None
        return answer

    def end(self) -> None:
        self.process.kill()  # also in the middle of a task; workers own nothing that has to be cleaned up
        self._release()

    def _release(self) -> int | None:
        """Release the resources of a dead worker, and return its exit code."""
        self.pipe.close()
        self.process.join(5)
        self.process.kill()  # in case that it has closed its pipe but does not end
        self.process.join()
        return self.process.exitcode


def start_without_main() -> ProcessWorker:
    """Start a worker that does not import the caller's script: its tasks need nothing that is defined there."""
    with without_main():
        return ProcessWorker.start()


class ProcessPool(Pool):
    """Worker processes of one thread each.

    workers: how many.
    start: starts one of them.
    """

    workers: list[ProcessWorker]  # type: ignore[assignment]

    def __init__(self, workers: int, start: Callable[[], ProcessWorker] = start_without_main):
        self._start_one = start
        super().__init__(workers)

    def _start(self) -> Worker:
        return self._start_one()

    def _wait(self, seconds: float | None) -> Sequence[Worker]:
        workers = {worker.pipe: worker for worker in self.workers}
        return [workers[pipe] for pipe in wait(list(workers), seconds)]  # type: ignore[index]  # typeshed: sockets too

    def ask_to_end(self, seconds: float) -> None:
        """Send SIGTERM to busy workers, so that they save their state, and wait until they end.

        seconds: how long to wait for all of them together.
        """
        busy = [worker.process for worker in self.workers if worker.index is not None]
        end = time.monotonic() + seconds
        for process in busy:
            process.terminate()
        for process in busy:
            process.join(max(end - time.monotonic(), 0))


def _serve(pipe: Connection) -> None:
    """Compute tasks until the parent closes the pipe or ends: the main function of a worker process."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted parent ends its workers
    prepare_worker()
    memory: Memory = {}
    with suppress(EOFError, ConnectionError):
        pipe.send(None)  # ready
        while True:
            pipe.send(_answer(memory, pipe))


def _answer(memory: Memory, pipe: Connection) -> object:
    try:
        task: Task = pipe.recv()
    except (EOFError, ConnectionError):
        raise
    except Exception:
        return RuntimeError(f"a worker process cannot load the model or the data:\n{traceback.format_exc()}")
    return answer_task(task, memory)
