"""Test loss and accuracy of the models of a round."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from landscape import Objective
from landscape.layout import running_statistics
from landscape.results import Evaluation
from landscape.runtime.replica import NORM
from training.clients.local_training import OWN_STATISTICS
from training.clients.trainer import LocalTrainer
from training.data.dataset import Dataset
from training.data.dealing import ClientIndices, Ints
from training.data.sources import read_or_hold
from training.engine.state import State
from training.storage.client_vectors import ClientVectors
from training.storage.metrics import Record
from training.tasks.task import Metrics, Task, count_confusion


def choose_batchnorm(model: nn.Module) -> str:
    """The BatchNorm policy for evaluation: running statistics travel with the weights; without any, the batch's own."""
    if running_statistics(model):
        return "interpolated"
    return "batch" if any(isinstance(module, NORM) for module in model.modules()) else "frozen"


def make_test_objective(trainer: LocalTrainer, tests: ClientIndices | None) -> Objective | None:
    """The loss on the test data, or None where there is no test data.

    trainer: its model and data set are used.
    tests: the test examples of every client, as numbers of training examples, where the data was pooled.
    """
    positions = np.arange(len(trainer.dataset.test_inputs)) if tests is None else tests.flat
    if len(positions) == 0:
        return None
    split: Literal["train", "test"] = "test" if tests is None else "train"
    return _make_objective(trainer, split, positions, trainer.recipe.evaluation.batch_statistics)


def _make_objective(
    trainer: LocalTrainer, split: Literal["train", "test"], positions: Ints, together: int | None
) -> Objective:
    """The loss on some examples.

    together: so many at a time are normalised by their own statistics; None: by running ones.
    """
    return Objective(
        trainer.model,
        read_or_hold(trainer.dataset, split, positions, trainer.dtype),
        trainer.dataset.task.loss,
        chunk_size=together,
        dtype=trainer.dtype,
        batchnorm=choose_batchnorm(trainer.model) if together is None else "batch",
        device=trainer.device,
    )


@dataclass(frozen=True, eq=False)
class PartOfTests:
    """Test examples that are measured together.

    objective: the loss on them.
    name: of the test set that they belong to; a single one has the name "".
    client: whose running statistics they are tested with; None: nobody's own.
    """

    objective: Objective
    name: str = ""
    client: int | None = None


@dataclass(frozen=True, eq=False)
class KeptStatistics:
    """The running statistics that clients keep to themselves.

    kept: (b,) which of a model's statistics these are; the others are the server's.
    initial: (b,) what a client has before it first takes part.
    """

    kept: Tensor
    initial: Tensor

    def put(self, theta: Tensor, own: Mapping[str, Tensor]) -> Tensor:
        """Replace the statistics behind a model's weights by a client's.

        theta: weights and statistics of the server.
        own: the client's vectors; empty before it first takes part.
        """
        size = len(theta) - len(self.kept)
        mine = own.get(OWN_STATISTICS, self.initial)
        return torch.cat([theta[:size], torch.where(self.kept.to(theta.device), mine.to(theta), theta[size:])])


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Measures models on the test data of a run, by the metrics of their task.

    parts: the test data.
    task: whose metrics they are.
    classes: how many there are.
    statistics: of clients, where parts are tested with these.
    """

    parts: Sequence[PartOfTests]
    task: Task
    classes: int
    statistics: KeptStatistics | None = None

    @classmethod
    def of(cls, objective: Objective, dataset: Dataset) -> Evaluator:
        """Divide the test data into the data set's domains, where it has any.

        objective: the loss on all test data.
        dataset: where they come from.
        """
        domains = dataset.test_domains
        parts = [PartOfTests(objective)]
        if domains is not None:
            places = {name: torch.from_numpy(domains.find(number)) for number, name in enumerate(domains.names)}
            parts = [PartOfTests(objective.take(own), name) for name, own in places.items()]
        return cls(parts, dataset.task, dataset.classes)

    @classmethod
    def of_clients(
        cls, objective: Objective, trainer: LocalTrainer, tests: ClientIndices, initial: Tensor
    ) -> Evaluator:
        """Divide the test data so that every user's are tested with the statistics that its client keeps (FedDrive).

        objective: the loss on all test data, for those of users who are no clients.
        trainer: of the run.
        tests: the test examples of every client.
        initial: (b,) running statistics before the first round.
        """
        dataset = trainer.dataset
        running = _make_objective(trainer, "test", tests.flat, None)
        domains, total = dataset.test_domains, len(dataset.test_inputs)
        index = np.zeros(total, np.int64) if domains is None else domains.index
        free = np.setdiff1d(np.arange(total), tests.flat)
        parts = []
        for number, name in enumerate(("",) if domains is None else domains.names):
            others = free[index[free] == number]
            parts += [PartOfTests(objective.take(torch.from_numpy(others)), name)] if len(others) else []
            for client, (low, high) in enumerate(itertools.pairwise(tests.bounds.tolist())):
                mine = low + np.flatnonzero(index[tests.flat[low:high]] == number)
                parts += [PartOfTests(running.take(torch.from_numpy(mine)), name, client)] if len(mine) else []
        return cls(parts, dataset.task, dataset.classes, KeptStatistics(trainer.own_statistics, initial))

    def measure(self, theta: Tensor, clients: ClientVectors | None = None) -> Metrics:
        """Compute the metrics of a model: on all test data, and on every named test set of several.

        theta: its weights, followed by the running statistics of its norm layers, which the batches' own may replace.
        clients: the vectors of those that ever took part, where parts are tested with their statistics.
        """
        only = self.parts[0]
        if len(self.parts) == 1 and not self.task.confusion:
            return self.task.make_metrics(only.objective.evaluate(self._choose_point(only, theta, clients)), None)
        found: dict[str, list[tuple[Evaluation, Tensor]]] = {}
        for part in self.parts:
            point = self._choose_point(part, theta, clients)
            found.setdefault(part.name, []).append(self._observe(part.objective, point))
        metrics = self.task.make_metrics(*_combine([one for parts in found.values() for one in parts]))
        for name, parts in found.items():
            if name:
                own = self.task.make_metrics(*_combine(parts))
                metrics |= {f"{metric}_{name}": value for metric, value in own.items()}
        return metrics

    def _choose_point(self, part: PartOfTests, theta: Tensor, clients: ClientVectors | None) -> Tensor:
        """The point at which a part is measured: with the statistics of its client, or as it came."""
        if part.client is not None and self.statistics is not None:
            known = None if clients is None else clients.get(part.client)
            theta = self.statistics.put(theta, known or {})
        return theta[: part.objective.size]

    def _observe(self, objective: Objective, theta: Tensor) -> tuple[Evaluation, Tensor]:
        def count(outputs: Tensor, targets: Tensor) -> Tensor:
            return count_confusion(outputs.argmax(dim=1), targets, self.classes, self.task.ignored)

        evaluation, counts = objective.observe(theta, count)
        return evaluation, torch.stack(counts).sum(dim=0).cpu()


def _combine(parts: Sequence[tuple[Evaluation, Tensor]]) -> tuple[Evaluation, Tensor]:
    """Put the evaluations of disjoint test sets together: means over all predictions, and summed confusions."""
    if len(parts) == 1:
        return parts[0]
    confusion = torch.stack([one for _, one in parts]).sum(dim=0)
    count, right = int(confusion.sum()), int(confusion.diagonal().sum())
    loss = sum(evaluation.loss * int(one.sum()) for evaluation, one in parts) / count
    return Evaluation(loss, 1 - right / count, None), confusion


def evaluate_state(evaluator: Evaluator | None, state: State) -> Record:
    """Test the server's model, the participants' mean (mean_) and the SWA model (swa_).

    evaluator: of the test data; without any there are no metrics.
    state: the models.
    """
    if evaluator is None:
        return {}
    points = (
        ("", state.w, state.statistics),
        ("mean_", state.mean, state.statistics),
        ("swa_", state.swa, state.swa_statistics),
    )
    record: Record = {}
    metrics: Metrics = {}
    for name, w, statistics in points:
        if w is None or statistics is None:
            continue
        if name != "mean_" or not torch.equal(w, state.w):  # FedAvg's mean is the server's model: evaluate it once
            metrics = evaluator.measure(torch.cat([w, statistics]), state.clients)
        record |= {f"{name}{metric}": value for metric, value in metrics.items()}
    return record
