"""Who trains the clients: this process, several processes, or one stacked computation. Results come in order.

`serial` and `processes` agree bit for bit, because a client task always runs on one thread. `vmap` computes the
same steps for all clients at once and agrees to rounding (about 1e-12 relative per step in float64).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

import torch
from torch import Tensor
from torch import multiprocessing as mp

from landscape.workers import ordered_map
from training.local import DivergenceError, Result, Workshop, train_client
from training.parts import Vectors, Visit

BACKENDS = ("auto", "serial", "processes", "vmap")


@dataclass(frozen=True)
class Broadcast:
    """What every participant of a round receives."""

    start: Tensor  # (d,)
    message: Vectors
    statistics: Tensor  # (b,)
    lr: float
    round: int


@dataclass(frozen=True)
class Task:
    """One participant and what it remembers."""

    client: int
    state: Vectors


class Executor(ABC):
    """Runs the tasks of a round; results come back in the order of the tasks."""

    name: str

    @abstractmethod
    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> Iterator[Result]:
        """Train every task's client."""

    def close(self) -> None:  # noqa: B027  (most have nothing to give back)
        """Give back processes and memory."""


class Serial(Executor):
    """One client after the other in this process."""

    name = "serial"

    def __init__(self, shop: Workshop):
        self.shop = shop

    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> Iterator[Result]:
        return ordered_map(lambda task: _train(self.shop, broadcast, task), tasks, workers=1)


class Processes(Executor):
    """Spawned once and kept for the run; data and vectors travel through shared memory, one thread each."""

    name = "processes"

    def __init__(self, shop: Workshop, workers: int):
        context = mp.get_context("spawn")
        for tensor in (shop.dataset.train_images, shop.dataset.train_labels):
            _shared(tensor)
        self._workers = []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            arguments = (theirs, shop.recipe, shop.dataset, shop.parts, shop.method, shop.model)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, ours))
        self._board: Vectors = {}  # shared copies of what is broadcast
        self._desks: list[Vectors] = [{} for _ in self._workers]  # shared places for a task's own vectors

    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> Iterator[Result]:
        self._post(broadcast)
        idle = list(range(len(self._workers)))
        busy: dict[Connection, tuple[int, int]] = {}
        finished: dict[int, Result] = {}
        sent = handed = 0
        while handed < len(tasks):
            while idle and sent < len(tasks):
                worker = idle.pop(0)
                busy[self._hand(worker, tasks[sent])] = (worker, sent)
                sent += 1
            for pipe in wait(list(busy)):
                worker, place = busy.pop(pipe)  # type: ignore[call-overload]
                finished[place] = self._collect(worker)
                idle.append(worker)
            while handed in finished:
                yield finished.pop(handed)
                handed += 1

    def _post(self, broadcast: Broadcast) -> None:
        vectors = {"start": broadcast.start, "statistics": broadcast.statistics, **broadcast.message}
        if not self._board:
            self._board = {name: _shared(vector.clone()) for name, vector in vectors.items()}
            for _, pipe in self._workers:
                pipe.send(("board", self._board))
        for name, vector in vectors.items():
            self._board[name].copy_(vector)
        for _, pipe in self._workers:
            pipe.send(("round", broadcast.lr, broadcast.round))

    def _hand(self, worker: int, task: Task) -> Connection:
        _, pipe = self._workers[worker]
        desk = self._desks[worker]
        if not desk:
            desk.update({name: _shared(vector.clone()) for name, vector in task.state.items()})
            pipe.send(("desk", dict(desk)))
        for name, vector in task.state.items():
            desk[name].copy_(vector)
        pipe.send(("task", task.client))
        return pipe

    def _collect(self, worker: int) -> Result:
        process, pipe = self._workers[worker]
        try:
            answer: Result | BaseException = pipe.recv()
        except EOFError:
            process.join(1)
            raise RuntimeError(
                f"a worker process ended (exit code {process.exitcode}): out of memory? Use fewer --workers"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        # private copies: a tensor received from a process holds a file handle for as long as it lives
        return replace(
            answer,
            w=answer.w.clone(),
            statistics=answer.statistics.clone(),
            state={name: vector.clone() for name, vector in answer.state.items()},
            uploads={name: vector.clone() for name, vector in answer.uploads.items()},
        )

    def close(self) -> None:
        for process, pipe in self._workers:
            pipe.close()  # the worker sees the end of its pipe and leaves
            process.join(5)
            if process.is_alive():
                process.terminate()


def _shared(tensor: Tensor) -> Tensor:
    tensor.share_memory_()  # type: ignore[no-untyped-call]
    return tensor


def _serve(pipe: Connection, recipe, dataset, parts, method, model) -> None:  # type: ignore[no-untyped-def]
    torch.set_num_threads(1)
    shop = Workshop(recipe, dataset, parts, method, model)
    board: Vectors = {}
    desk: Vectors = {}
    lr, round = 0.0, 0
    while True:
        try:
            order, *content = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return  # the parent is gone, or the user stops: the parent tells
        if order == "board":
            (board,) = content
        elif order == "desk":
            (desk,) = content
        elif order == "round":
            lr, round = content
        else:
            message = {name: vector for name, vector in board.items() if name not in ("start", "statistics")}
            broadcast = Broadcast(board["start"].clone(), message, board["statistics"], lr, round)
            task = Task(content[0], {name: vector.clone() for name, vector in desk.items()})
            try:
                pipe.send(_train(shop, broadcast, task))
            except DivergenceError as error:
                pipe.send(error)


def _train(shop: Workshop, broadcast: Broadcast, task: Task) -> Result:
    visit = Visit(
        layout=shop.layout,
        start=broadcast.start,
        message=broadcast.message,
        state=dict(task.state),
        lr=broadcast.lr,
        steps=shop.steps(task.client),
        round=broadcast.round,
    )
    return train_client(shop, visit, task.client, broadcast.statistics)
