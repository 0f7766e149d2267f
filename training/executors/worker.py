"""A worker process of the processes backend: its two ends, what travels between them, and the memory they share."""

from __future__ import annotations

import io
import pickle
import signal
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch
from torch import Tensor
from torch import multiprocessing as mp

from landscape.runtime.memory import keep_freed
from training.clients.local_training import ClientResult, DivergenceError
from training.clients.trainer import LocalTrainer
from training.executors.base import Broadcast, Participant
from training.executors.parent import end_with_parent
from training.executors.serial import train_participant
from training.rules.vectors import Vectors

Groups = Mapping[str, Vectors]  # what vectors are for -> their names -> the vectors


class SharedVectors:
    """Vectors in shared memory that is allocated once and written many times.

    A process that has been sent `groups` also sees what is written into them later.
    """

    def __init__(self) -> None:
        self.groups: Groups = {}

    def write(self, groups: Groups) -> bool:
        """Copy vectors into the shared memory.

        groups: the vectors. Other names, shapes or types than the last time take new memory.
        Returns whether the memory is new, so that `groups` has to be sent to the reader again.
        """
        new = _describe(groups) != _describe(self.groups)
        if new:
            self.groups = {
                kind: {name: _share(torch.empty_like(vector)) for name, vector in vectors.items()}
                for kind, vectors in groups.items()
            }
        for kind, vectors in groups.items():
            for name, vector in vectors.items():
                self.groups[kind][name].copy_(vector)
        return new


def _describe(groups: Groups) -> dict[str, dict[str, tuple[torch.Size, torch.dtype]]]:
    return {
        kind: {name: (vector.shape, vector.dtype) for name, vector in vectors.items()}
        for kind, vectors in groups.items()
    }


def _share(tensor: Tensor) -> Tensor:
    return tensor.share_memory_()  # type: ignore[no-any-return, no-untyped-call]


@dataclass(frozen=True)
class Order:
    """A participant as it is sent to a worker; None stands for what the worker has been sent before."""

    client: int
    lr: float
    round: int
    trainer: LocalTrainer | None
    broadcast: Groups | None  # "points": start and statistics; "message"
    state: Groups | None  # "state"


@dataclass(frozen=True)
class Delivery:
    """A result as a worker sends it back."""

    result: ClientResult  # without its vectors
    vectors: Groups | None  # "points": w and statistics; "state"; "uploads". None: in the same memory as the last ones


@dataclass(eq=False)
class Worker:
    """A worker process as its parent sees it."""

    process: BaseProcess
    pipe: Connection
    ready: bool = False  # it has started
    index: int | None = None  # of the participant that it trains, in the round's order; None: it trains none
    has_trainer: bool = False
    broadcast: Groups = field(default_factory=dict)  # shared memory that it reads, as all workers do
    state: SharedVectors = field(default_factory=SharedVectors)  # that it alone reads
    result: Groups = field(default_factory=dict)  # that it writes

    @classmethod
    def start(cls) -> Worker:
        """Start a worker process; the first thing that it sends says that it is ready."""
        context = mp.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()  # so that the pipe ends when the worker dies
        return cls(process, ours)

    def send(
        self, index: int, broadcast: Broadcast, shared: Groups, participant: Participant, trainer: LocalTrainer
    ) -> None:
        """Send a participant to train, and whatever the worker needs for it and does not have yet.

        index: of the participant in the round's order.
        broadcast: what every participant of the round receives.
        shared: the vectors of the broadcast in shared memory.
        participant: the client and its own vectors.
        trainer: trains one client of the run.
        A worker that has died is not an error here: `receive` tells.
        """
        order = Order(
            client=participant.client,
            lr=broadcast.lr,
            round=broadcast.round,
            trainer=None if self.has_trainer else trainer,
            broadcast=None if self.broadcast is shared else shared,
            state=self.state.groups if self.state.write({"state": participant.state}) else None,
        )
        self.has_trainer, self.broadcast, self.index = True, shared, index
        with suppress(ConnectionError):
            self.pipe.send(order)

    def receive(self) -> ClientResult | Exception | None:
        """Wait for the worker's next answer: a result, an error, or None when it has just started.

        Raises EOFError or OSError if the worker has died.
        """
        answer: Delivery | Exception | None = self.pipe.recv()
        self.ready, self.index = True, None
        if isinstance(answer, Exception):  # perhaps it could not load what it was sent
            self.has_trainer, self.broadcast, self.state = False, {}, SharedVectors()
        if not isinstance(answer, Delivery):
            return answer
        if answer.vectors is not None:
            self.result = answer.vectors
        # copies: the worker overwrites the shared memory with its next result
        own = {kind: {name: vector.clone() for name, vector in some.items()} for kind, some in self.result.items()}
        points = own["points"]
        return replace(
            answer.result, w=points["w"], statistics=points["statistics"], state=own["state"], uploads=own["uploads"]
        )

    def release(self) -> int | None:
        """Release what a dead worker has left, and return its exit code."""
        self.pipe.close()
        self.process.join(5)
        self.process.kill()  # in case that it has closed its pipe but does not end
        self.process.join()
        return self.process.exitcode


def require_picklable(trainer: LocalTrainer) -> None:
    """Raise ValueError unless a trainer can be sent to other processes."""
    try:
        _DryPickler(io.BytesIO()).dump(trainer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"backend processes: the model cannot be sent to other processes ({error}). Define its classes and "
            "functions at the top of their module, or use serial"
        ) from error


class _DryPickler(ForkingPickler):
    """Pickles all but the contents of tensors and arrays, to find out whether pickling will succeed."""

    def reducer_override(self, value: object) -> tuple[Callable[[], object], tuple[()]]:
        return (int, ()) if isinstance(value, (Tensor, np.ndarray)) else NotImplemented


def _reduce_trainer(trainer: LocalTrainer) -> tuple[type[LocalTrainer], tuple[object, ...]]:
    """Send what a trainer is made from; the worker builds the rest."""
    return LocalTrainer, (trainer.recipe, trainer.dataset, trainer.client_indices, trainer.method, trainer.model)


ForkingPickler.register(LocalTrainer, _reduce_trainer)  # torch has registered its tensors: they go to shared memory


def _serve(pipe: Connection) -> None:
    """Train clients until the parent closes the pipe or ends: the main function of a worker process."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted parent ends its workers
    torch.set_num_threads(1)
    keep_freed()
    server = ParticipantServer()
    with suppress(EOFError, ConnectionError):
        pipe.send(None)  # ready
        while True:
            pipe.send(_answer(server, pipe))


def _answer(server: ParticipantServer, pipe: Connection) -> Delivery | Exception:
    try:
        order: Order = pipe.recv()
    except (EOFError, ConnectionError):
        raise
    except Exception:
        return RuntimeError(f"a worker process cannot load the model or the data:\n{traceback.format_exc()}")
    try:
        return server.train(order)
    except DivergenceError as error:
        return error
    except Exception:
        # of any type, so perhaps one that cannot be pickled: as text, with the traceback
        return RuntimeError(f"client {order.client} failed in a worker process:\n{traceback.format_exc()}")


class ParticipantServer:
    """Trains clients in a worker process, and keeps what it has been sent for the next one."""

    trainer: LocalTrainer

    def __init__(self) -> None:
        self.broadcast: Groups = {}
        self.state: Groups = {}
        self.result = SharedVectors()

    def train(self, order: Order) -> Delivery:
        """Train the client of an order; its vectors go to shared memory."""
        if order.trainer is not None:
            self.trainer = order.trainer
        if order.broadcast is not None:
            self.broadcast = order.broadcast
        if order.state is not None:
            self.state = order.state
        sent, message = self.broadcast["points"], self.broadcast["message"]
        broadcast = Broadcast(sent["start"], message, sent["statistics"], order.lr, order.round)
        result = train_participant(self.trainer, broadcast, Participant(order.client, self.state["state"]))
        points = {"w": result.w, "statistics": result.statistics}
        new = self.result.write({"points": points, "state": result.state, "uploads": result.uploads})
        nothing = torch.empty(0)
        bare = replace(result, w=nothing, statistics=nothing, state={}, uploads={})
        return Delivery(bare, self.result.groups if new else None)
