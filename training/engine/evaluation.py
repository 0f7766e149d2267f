"""Test loss and accuracy of the models of a round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from landscape import Objective
from landscape.layout import running_statistics
from landscape.runtime.replica import NORM
from training.clients.trainer import LocalTrainer
from training.data import datasets
from training.data.dealing import Ints
from training.engine.state import State
from training.storage.metrics import Record
from training.tasks.task import Task


def choose_batchnorm(model: nn.Module) -> str:
    """The BatchNorm policy for evaluation: running statistics travel with the weights; without any, the batch's own."""
    if running_statistics(model):
        return "interpolated"
    return "batch" if any(isinstance(module, NORM) for module in model.modules()) else "frozen"


def make_test_objective(trainer: LocalTrainer, tests: Sequence[Ints] | None) -> Objective | None:
    """The loss on the test data, or None where there is no test data.

    trainer: its model and data set are used.
    tests: the test examples of every client, as indices of training images, where the data was pooled.
    """
    dataset = trainer.dataset
    images, labels = dataset.test_images, dataset.test_labels
    if tests is not None:
        chosen = torch.from_numpy(np.concatenate(tests))
        images, labels = dataset.train_images[chosen], dataset.train_labels[chosen]
    if len(labels) == 0:
        return None
    inputs = datasets.normalise(images, dataset, trainer.dtype)
    policy = choose_batchnorm(trainer.model)
    return Objective(trainer.model, (inputs, labels), dataset.task.loss, dtype=trainer.dtype, batchnorm=policy)


def evaluate_state(objective: Objective | None, state: State, task: Task) -> Record:
    """Test the server's model, the participants' mean (mean_) and the SWA model (swa_).

    objective: the loss on the test data; without any there are no metrics.
    state: the models.
    task: whose metrics are returned.
    """
    if objective is None:
        return {}
    points = (
        ("", state.w, state.statistics),
        ("mean_", state.mean, state.statistics),
        ("swa_", state.swa, state.swa_statistics),
    )
    record: Record = {}
    for name, w, statistics in points:
        if w is None or statistics is None:
            continue
        if name != "mean_" or not torch.equal(w, state.w):  # FedAvg's mean is the server's model: evaluate it once
            evaluation = objective.evaluate(torch.cat([w, statistics]))
        record |= {f"{name}{metric}": value for metric, value in task.make_metrics(evaluation).items()}
    return record
