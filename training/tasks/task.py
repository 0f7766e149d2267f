"""What a task is: the inputs and targets of a data set, the loss of a batch and the metrics of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from landscape.results import Evaluation

Metrics = dict[str, float | None]


class TaskLoss(Protocol):
    """A loss with the signature of torch's own, such as `torch.nn.functional.cross_entropy`."""

    def __call__(self, outputs: Tensor, targets: Tensor, /, *, reduction: str = "mean") -> Tensor:
        """Return the mean loss of a batch, or with reduction "none" the losses of its elements."""


class TrainingLoss(Protocol):
    """The loss that local training minimises."""

    def __call__(self, outputs: Sequence[Tensor], targets: Tensor, /, *, reduction: str = "mean") -> Tensor:
        """Return the mean loss of a batch, or with reduction "none" the losses of its elements.

        outputs: of the main head, then of the auxiliary heads that a network has in training mode.
        """


@dataclass(frozen=True)
class Task:
    """What a data set asks of a model.

    name: of the task, for messages.
    inputs: images (N, C, H, W), or token sequences (N, L).
    targets: one label for each example (N,), or a label map (N, H, W).
    loss: what `Objective` measures.
    count_correct: takes outputs and targets of a batch and returns the number of correct predictions, and of all.
    make_metrics: takes the evaluation of a model on test data, and the confusion matrix if `confusion` is true, and
        returns the metrics by name.
    training_loss: takes the share of the hardest pixels that local training minimises, None for all, and returns the
        loss of one head; None: it minimises `loss`.
    ignored: the label that counts for nothing, if there is one.
    confusion: whether metrics need the confusion matrix.
    reference: the 'module:name' that a user's own task was found by; runs keep the SHA-256 of that module.
    """

    name: str
    inputs: Literal["images", "tokens"]
    targets: Literal["label", "map"]
    loss: TaskLoss
    count_correct: Callable[[Tensor, Tensor], tuple[int, int]]
    make_metrics: Callable[[Evaluation, Tensor | None], Metrics]
    training_loss: Callable[[float | None], TaskLoss] | None = None
    ignored: int | None = None
    confusion: bool = False
    reference: str = field(default="", compare=False)

    def make_training_loss(self, hard_pixels: float | None) -> TrainingLoss:
        """Make the loss that local training minimises: the sum over the main and the auxiliary heads.

        hard_pixels: the recipe's setting; ValueError if the task has no pixels.
        """
        if self.training_loss is not None:
            return _add_heads(self.training_loss(hard_pixels))
        if hard_pixels is not None:
            raise ValueError(f"local.hard_pixels is for segmentation, but the task is {self.name}; leave it out")
        return _add_heads(self.loss)


def _add_heads(loss: TaskLoss) -> TrainingLoss:
    def compute(outputs: Sequence[Tensor], targets: Tensor, /, *, reduction: str = "mean") -> Tensor:
        total = loss(outputs[0], targets, reduction=reduction)
        for auxiliary in outputs[1:]:
            total = total + loss(auxiliary, targets, reduction=reduction)
        return total

    return compute


def count_confusion(predicted: Tensor, targets: Tensor, classes: int, ignored: int | None = None) -> Tensor:
    """Count how often each class (rows) was taken for each class (columns), (classes, classes) int64.

    predicted: classes of the model's choice.
    targets: the true classes, of the same shape.
    classes: how many there are.
    ignored: the label that counts for nothing, if there is one.

    >>> count_confusion(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 0, 1, 255]), 2, ignored=255).tolist()
    [[1, 1], [0, 1]]
    """
    cells = targets.reshape(-1) * classes + predicted.reshape(-1)
    if ignored is not None:
        cells = cells[targets.reshape(-1) != ignored]
    return torch.bincount(cells, minlength=classes * classes).view(classes, classes)
