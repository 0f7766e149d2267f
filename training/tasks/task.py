"""What a task is: the loss of a batch and the metrics of a model. A data set names its task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from landscape.results import Evaluation


class TaskLoss(Protocol):
    """A loss with the signature of torch's own, such as `torch.nn.functional.cross_entropy`."""

    def __call__(self, outputs: Tensor, targets: Tensor, /, *, reduction: str = "mean") -> Tensor:
        """Return the mean loss of a batch, or with reduction "none" the loss of each example."""


@dataclass(frozen=True)
class Task:
    """What a data set asks of a model.

    name: of the task, for messages.
    loss: what local training minimises and what `Objective` measures.
    count_correct: takes outputs and targets of a batch and returns the number of correct predictions.
    make_metrics: takes the evaluation of a model on test data and returns its metrics by name.
    """

    name: str
    loss: TaskLoss
    count_correct: Callable[[Tensor, Tensor], int]
    make_metrics: Callable[[Evaluation], dict[str, float | None]]
