"""Test loss and accuracy of the models of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from landscape import Objective
from landscape.layout import running_statistics
from landscape.results import Evaluation
from landscape.runtime.replica import NORM
from training.clients.trainer import LocalTrainer
from training.data.dataset import Dataset
from training.data.dealing import ClientIndices
from training.data.sources import read_or_hold
from training.engine.state import State
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
    dataset = trainer.dataset
    positions = np.arange(len(dataset.test_inputs)) if tests is None else tests.flat
    if len(positions) == 0:
        return None
    data = read_or_hold(dataset, "test" if tests is None else "train", positions, trainer.dtype)
    together = trainer.recipe.evaluation.batch_statistics
    policy = choose_batchnorm(trainer.model) if together is None else "batch"
    return Objective(
        trainer.model,
        data,
        dataset.task.loss,
        chunk_size=together,
        dtype=trainer.dtype,
        batchnorm=policy,
        device=trainer.device,
    )


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Measures models on the test data of a run, by the metrics of their task.

    objectives: the loss on every named test set; a single one has the name "".
    task: whose metrics they are.
    classes: how many there are.
    """

    objectives: Mapping[str, Objective]
    task: Task
    classes: int

    @classmethod
    def of(cls, objective: Objective, dataset: Dataset) -> Evaluator:
        """Divide the test data into the data set's domains, where it has any.

        objective: the loss on all test data.
        dataset: where they come from.
        """
        domains = dataset.test_domains
        if domains is None:
            return cls({"": objective}, dataset.task, dataset.classes)
        places = {name: torch.from_numpy(domains.find(number)) for number, name in enumerate(domains.names)}
        objectives = {name: objective.take(own) for name, own in places.items()}
        return cls(objectives, dataset.task, dataset.classes)

    def measure(self, theta: Tensor) -> Metrics:
        """Compute the metrics of a model: on all test data, and on every named test set of several.

        theta: its weights, followed by the running statistics of its norm layers, which the batches' own may replace.
        """
        if list(self.objectives) == [""] and not self.task.confusion:
            objective = self.objectives[""]
            return self.task.make_metrics(objective.evaluate(theta[: objective.size]), None)
        found = {name: self._observe(objective, theta) for name, objective in self.objectives.items()}
        metrics = self.task.make_metrics(*_combine(list(found.values())))
        for name, (evaluation, confusion) in found.items():
            if name:
                own = self.task.make_metrics(evaluation, confusion)
                metrics |= {f"{metric}_{name}": value for metric, value in own.items()}
        return metrics

    def _observe(self, objective: Objective, theta: Tensor) -> tuple[Evaluation, Tensor]:
        def count(outputs: Tensor, targets: Tensor) -> Tensor:
            return count_confusion(outputs.argmax(dim=1), targets, self.classes, self.task.ignored)

        evaluation, counts = objective.observe(theta[: objective.size], count)
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
            metrics = evaluator.measure(torch.cat([w, statistics]))
        record |= {f"{name}{metric}": value for metric, value in metrics.items()}
    return record
