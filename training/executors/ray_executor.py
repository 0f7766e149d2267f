"""The ray backend: clients trained by Ray actors, on this machine or on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.clients.local_training import ClientResult
from training.clients.trainer import LocalTrainer
from training.executors.base import Broadcast, Executor, Participant
from training.executors.pool import Memory, yield_in_order
from training.executors.processes import plan_round
from training.executors.ray_pool import RayPool, RayWorker
from training.executors.serial import train_participant
from training.executors.worker import (
    Groups,
    answer_client,
    join_result,
    reduce_trainer,
    require_picklable,
    split_result,
)

Arrays = Mapping[str, Mapping[str, NDArray[np.generic]]]  # Groups as numpy arrays, which Ray does not copy


class Ray(Executor):
    """Trains clients in Ray actors, which build their trainer once.

    The broadcast goes into Ray's object store once a round. An actor that dies is replaced and its client trained
    again, also when its whole node is lost, which gives the same bits.

    trainer: trains one client of the run.
    pool: the actors; `close` ends them.
    """

    name = "ray"

    def __init__(self, trainer: LocalTrainer, pool: RayPool):
        self.pool = pool
        self.assign(trainer)

    def assign(self, trainer: LocalTrainer) -> None:
        """Train another federation's clients with the same actors.

        trainer: trains one client of that federation. ValueError if it cannot be sent to other processes.
        """
        import ray

        require_picklable(trainer)
        self._trainer, self._parts = trainer, ray.put(reduce_trainer(trainer))

    def run(self, broadcast: Broadcast, participants: Sequence[Participant]) -> Iterator[ClientResult]:
        import ray

        points = {"start": broadcast.start, "statistics": broadcast.statistics}
        sent = ray.put(to_arrays({"points": points, "message": broadcast.message}))

        def give(worker: RayWorker, index: int) -> None:
            one = participants[index]
            state = to_arrays({"state": dict(one.state)})
            worker.give(index, TrainTask(self._parts, sent, one.client, state, broadcast.lr, broadcast.round))

        work = plan_round(self._trainer, participants, len(self.pool.workers), give)
        for bare, arrays in yield_in_order(self.pool.compute(work)):
            yield join_result(bare, to_tensors(arrays, broadcast.start.device))

    def close(self) -> None:
        self.pool.close()


@dataclass(frozen=True)
class TrainTask:
    """The task to train one participant.

    trainer: reference of the parts of the trainer. broadcast: reference of the vectors that every participant receives.
    client, state: the participant. lr, round: of the broadcast.
    """

    trainer: Any  # ray.ObjectRef
    broadcast: Any  # ray.ObjectRef
    client: int
    state: Arrays
    lr: float
    round: int

    def __call__(self, memory: Memory) -> tuple[ClientResult, Arrays] | Exception:
        """Train the participant in an actor, whose memory keeps trainer and broadcast for the next one."""
        return answer_client(self.client, lambda: self._train(memory))

    def _train(self, memory: Memory) -> tuple[ClientResult, Arrays]:
        import ray

        if memory.get("trainer_of") != self.trainer:
            build, parts = ray.get(self.trainer)
            memory.update(trainer_of=self.trainer, trainer=build(*parts), broadcast_of=None)
        trainer: LocalTrainer = memory["trainer"]
        device = trainer.replica.flat.device
        if memory.get("broadcast_of") != self.broadcast:
            memory.update(broadcast_of=self.broadcast, broadcast=to_tensors(ray.get(self.broadcast), device))
        sent: Groups = memory["broadcast"]
        points = sent["points"]
        broadcast = Broadcast(points["start"], sent["message"], points["statistics"], self.lr, self.round)
        participant = Participant(self.client, to_tensors(self.state, device)["state"])
        bare, vectors = split_result(train_participant(trainer, broadcast, participant))
        return bare, to_arrays(vectors)


def to_arrays(groups: Groups) -> Arrays:
    """Turn vectors into numpy arrays."""
    return {
        kind: {name: vector.detach().cpu().numpy() for name, vector in vectors.items()}
        for kind, vectors in groups.items()
    }


def to_tensors(arrays: Arrays, device: torch.device) -> dict[str, dict[str, Tensor]]:
    """Copy numpy arrays into vectors: the arrays that Ray returns must not be written to."""
    return {
        kind: {name: torch.from_numpy(np.array(vector)).to(device) for name, vector in vectors.items()}
        for kind, vectors in arrays.items()
    }
