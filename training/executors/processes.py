"""The processes backend: workers that are spawned once and kept for the run."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import Tensor
from torch import multiprocessing as mp

from landscape.runtime.memory import keep_freed
from training.engine.local_training import ClientResult, DivergenceError
from training.engine.trainer import LocalTrainer
from training.executors.base import Broadcast, Executor, Task
from training.executors.parent import end_with_parent
from training.executors.serial import train_task
from training.rules.vectors import Vectors


@dataclass(eq=False)
class Worker:
    """One worker process as its parent sees it."""

    process: BaseProcess
    pipe: Connection
    desk: Vectors  # shared places for the vectors of the task in hand
    busy: bool = False


class Processes(Executor):
    """Spawned once and kept for the run; data and vectors travel through shared memory, one thread each."""

    name = "processes"

    def __init__(self, trainer: LocalTrainer, workers: int):
        context = mp.get_context("spawn")
        self._workers: list[Worker] = []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(Worker(process, ours, {}))
        try:
            self.employ(trainer)
        except BaseException:
            self.close()
            raise

    def employ(self, trainer: LocalTrainer) -> None:
        """Let the workers, already there, serve another run: starting them takes seconds."""
        self._settle()
        for tensor in (trainer.dataset.train_images, trainer.dataset.train_labels):
            _shared(tensor)
        self._board: Vectors = {}  # shared copies of what is broadcast
        try:
            for worker in self._workers:
                worker.desk = {}
                self._send(
                    worker,
                    ("trainer", trainer.recipe, trainer.dataset, trainer.client_indices, trainer.method, trainer.model),
                )
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"backend processes: the model cannot be sent to other processes ({error}). Define its classes and "
                "functions at the top of their module, or use serial"
            ) from error

    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> Iterator[ClientResult]:
        self._settle()
        self._post(broadcast)
        places: dict[Connection, tuple[Worker, int]] = {}
        finished: dict[int, ClientResult | Exception] = {}
        sent = handed = 0
        while handed < len(tasks):
            for worker in self._workers:
                if not worker.busy and sent < len(tasks):
                    self._hand(worker, tasks[sent])
                    places[worker.pipe] = worker, sent
                    sent += 1
            for pipe in wait(list(places)):
                worker, place = places.pop(pipe)  # type: ignore[call-overload]
                finished[place] = self._receive(worker)
                if sent < len(tasks):  # at once: it need not wait until its answer is counted
                    self._hand(worker, tasks[sent])
                    places[worker.pipe] = worker, sent
                    sent += 1
            while handed in finished:
                answer = finished.pop(handed)
                if isinstance(answer, Exception):
                    raise answer  # only now: of several the first in order, as in a serial run
                yield answer
                handed += 1

    def _settle(self) -> None:
        """Wait for whoever still works on a round that was given up; nobody wants the answers."""
        for worker in self._workers:
            if worker.busy:
                self._receive(worker)

    def _post(self, broadcast: Broadcast) -> None:
        vectors = {"start": broadcast.start, "statistics": broadcast.statistics, **broadcast.message}
        if not self._board:
            self._board = {name: _shared(vector.clone()) for name, vector in vectors.items()}
            for worker in self._workers:
                self._send(worker, ("board", self._board))
        for name, vector in vectors.items():
            self._board[name].copy_(vector)
        for worker in self._workers:
            self._send(worker, ("round", broadcast.lr, broadcast.round))

    def _hand(self, worker: Worker, task: Task) -> None:
        if worker.desk.keys() != task.state.keys():
            worker.desk = {name: _shared(vector.clone()) for name, vector in task.state.items()}
            self._send(worker, ("desk", worker.desk))
        for name, vector in task.state.items():
            worker.desk[name].copy_(vector)
        self._send(worker, ("task", task.client))
        worker.busy = True

    def _send(self, worker: Worker, order: tuple[Any, ...]) -> None:
        try:
            worker.pipe.send(order)
        except OSError:
            raise _gone(worker) from None

    def _receive(self, worker: Worker) -> ClientResult | Exception:
        try:
            answer: ClientResult | Exception = worker.pipe.recv()
        except (EOFError, OSError):
            raise _gone(worker) from None
        worker.busy = False
        if isinstance(answer, Exception):
            return answer
        # private copies: a tensor received from a process holds a file handle for as long as it lives
        return replace(
            answer,
            w=answer.w.clone(),
            statistics=answer.statistics.clone(),
            state={name: vector.clone() for name, vector in answer.state.items()},
            uploads={name: vector.clone() for name, vector in answer.uploads.items()},
        )

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()  # the worker sees the end of its pipe and leaves
        for worker in self._workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.terminate()


def _gone(worker: Worker) -> ConnectionError:
    worker.process.join(1)
    return ConnectionError(
        f"a worker process ended (exit code {worker.process.exitcode}): out of memory? Use fewer --workers"
    )


def _shared(tensor: Tensor) -> Tensor:
    tensor.share_memory_()  # type: ignore[no-untyped-call]
    return tensor


def _serve(pipe: Connection) -> None:
    """What a worker process does: answer tasks until the pipe ends."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted parent closes the pipe, and speaks for all
    torch.set_num_threads(1)
    keep_freed()
    trainer: LocalTrainer
    board: Vectors = {}
    desk: Vectors = {}
    lr, round = 0.0, 0
    while True:
        try:
            order, *content = pipe.recv()
        except (EOFError, OSError):
            return
        if order == "trainer":
            trainer, desk = LocalTrainer(*content), {}
        elif order == "board":
            (board,) = content
        elif order == "desk":
            (desk,) = content
        elif order == "round":
            lr, round = content
        else:
            message = {name: vector for name, vector in board.items() if name not in ("start", "statistics")}
            broadcast = Broadcast(board["start"], message, board["statistics"], lr, round)
            task = Task(content[0], desk)
            answer: ClientResult | Exception
            try:
                answer = train_task(trainer, broadcast, task)
            except DivergenceError as error:
                answer = error
            except Exception:
                # of any type, so perhaps one that cannot be sent: as text, with the place where it happened
                answer = RuntimeError(f"client {task.client} failed in a worker process:\n{traceback.format_exc()}")
            try:
                pipe.send(answer)
            except OSError:
                return
