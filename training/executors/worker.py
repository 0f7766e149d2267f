"""A worker process of the processes backend: both ends, their messages, and the memory they share."""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from training.clients.local_training import ClientResult, DivergenceError
from training.clients.trainer import LocalTrainer
from training.executors.base import Broadcast, Participant
from training.executors.pool import Memory
from training.executors.process_pool import ProcessWorker
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
    """The task to train one participant, as it is sent; None stands for what the worker has been sent before."""

    client: int
    lr: float
    round: int
    trainer: LocalTrainer | None
    broadcast: Groups | None  # "points": start and statistics; "message"
    state: Groups | None  # "state"

    def __call__(self, memory: Memory) -> Delivery | Exception:
        """Train the participant in a worker process, whose memory keeps what has been sent."""
        server: ParticipantServer = memory.setdefault("server", ParticipantServer())
        return answer_client(self.client, lambda: server.train(self))


@dataclass(frozen=True)
class Delivery:
    """A result as a worker sends it back."""

    result: ClientResult  # without its vectors
    vectors: Groups | None  # "points": w and statistics; "state"; "uploads". None: in the same memory as the last ones


class Worker(ProcessWorker):
    """A worker process that trains clients, as its parent sees it."""

    def __init__(self, process: BaseProcess, pipe: Connection):
        super().__init__(process, pipe)
        self.has_trainer = False
        self.broadcast: Groups = {}  # shared memory that it reads, as all workers do
        self.state = SharedVectors()  # that it alone reads
        self.result: Groups = {}  # that it writes

    def send(
        self, index: int, broadcast: Broadcast, shared: Groups, participant: Participant, trainer: LocalTrainer
    ) -> None:
        """Send a participant to train, and whatever the worker needs for it and does not have yet.

        index: of the participant in the round's order.
        broadcast: what every participant of the round receives.
        shared: the vectors of the broadcast in shared memory.
        participant: the client and its own vectors.
        trainer: trains one client of the run.
        """
        order = Order(
            client=participant.client,
            lr=broadcast.lr,
            round=broadcast.round,
            trainer=None if self.has_trainer else trainer,
            broadcast=None if self.broadcast is shared else shared,
            state=self.state.groups if self.state.write({"state": dict(participant.state)}) else None,
        )
        self.has_trainer, self.broadcast = True, shared
        self.give(index, order)

    def receive(self) -> object:
        answer = super().receive()
        if isinstance(answer, Exception):  # perhaps it could not load what it was sent
            self.has_trainer, self.broadcast, self.state = False, {}, SharedVectors()
        if not isinstance(answer, Delivery):
            return answer
        if answer.vectors is not None:
            self.result = answer.vectors
        # copies: the worker overwrites the shared memory with its next result
        own = {kind: {name: vector.clone() for name, vector in some.items()} for kind, some in self.result.items()}
        return join_result(answer.result, own)


def split_result(result: ClientResult) -> tuple[ClientResult, Groups]:
    """Split a result into what is small and its vectors."""
    points = {"w": result.w, "statistics": result.statistics}
    nothing = torch.empty(0)
    bare = replace(result, w=nothing, statistics=nothing, state={}, uploads={})
    return bare, {"points": points, "state": result.state, "uploads": result.uploads}


def join_result(bare: ClientResult, vectors: Groups) -> ClientResult:
    """Join what `split_result` has split."""
    points = vectors["points"]
    return replace(
        bare, w=points["w"], statistics=points["statistics"], state=vectors["state"], uploads=vectors["uploads"]
    )


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


def reduce_trainer(trainer: LocalTrainer) -> tuple[type[LocalTrainer], tuple[object, ...]]:
    """Send what a trainer is made from; the worker builds the rest."""
    data, device = (trainer.dataset, trainer.client_indices), trainer.device
    return LocalTrainer, (trainer.recipe, *data, trainer.method, trainer.model, device)


ForkingPickler.register(LocalTrainer, reduce_trainer)  # torch has registered its tensors: they go to shared memory


Answer = TypeVar("Answer")


def answer_client(client: int, train: Callable[[], Answer]) -> Answer | Exception:
    """Train a client in a worker; an error is returned, as one that can be sent and that names the client.

    client: its number. train: trains it.
    """
    try:
        return train()
    except DivergenceError as error:
        return error
    except Exception:
        # of any type, so perhaps one that cannot be pickled: as text, with the traceback
        return RuntimeError(f"client {client} failed in a worker process:\n{traceback.format_exc()}")


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
        bare, vectors = split_result(result)
        return Delivery(bare, self.result.groups if self.result.write(vectors) else None)
