"""Classification: outputs (B, classes), and for each example a class, or a weight for every class (mixed labels)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from landscape.errors import whole
from landscape.results import Evaluation
from training.settings import MOST_CLASSES
from training.tasks.task import Metrics, Task


def count_correct(outputs: Tensor, targets: Tensor) -> tuple[int, int]:
    """Count the examples whose class has the largest output, and all of them.

    outputs: (B, classes).
    targets: (B,) the classes.

    >>> count_correct(torch.tensor([[0.2, 0.8], [0.6, 0.4], [0.1, 0.9]]), torch.tensor([1, 1, 1]))
    (2, 3)
    """
    return int((outputs.argmax(dim=1) == targets).sum()), len(targets)


def make_metrics(evaluation: Evaluation, confusion: Tensor | None = None) -> Metrics:
    """Return test loss and accuracy; the accuracy is None where errors could not be counted.

    evaluation: of a model on the test data.
    confusion: not used.

    >>> make_metrics(Evaluation(0.5, 0.25, None, None))
    {'test_loss': 0.5, 'accuracy': 0.75}
    """
    return {"test_loss": evaluation.loss, "accuracy": None if evaluation.error is None else 1 - evaluation.error}


def check_labels(name: str, labels: object, examples: int) -> Tensor:
    """Return labels as a tensor (examples,) of int64, or raise ValueError where they are not whole numbers.

    name: whose labels they are, for messages.
    labels: a tensor or an array.
    examples: how many there should be.
    """
    if isinstance(labels, np.ndarray):
        labels = torch.from_numpy(np.require(labels, requirements=["C", "W"]))
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dtype == torch.bool:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"{name} labels must be a tensor or array of whole numbers, got {kind}")
    if tuple(labels.shape) != (examples,):
        raise ValueError(f"{name} labels must have shape ({examples},), one per example; got {tuple(labels.shape)}")
    return labels.cpu().to(torch.int64).contiguous()


def count_classes(name: str, labels: Tensor, classes: int | None = None) -> int:
    """Return the number of classes, or raise ValueError for a label outside 0..classes-1.

    name: of the data set, for messages.
    labels: all of them, for training and testing.
    classes: how many there are; by default the largest label plus one.

    >>> count_classes("mine", torch.tensor([0, 2, 1]))
    3
    """
    smallest, largest = int(labels.min()), int(labels.max())
    total = largest + 1 if classes is None else whole("classes", classes)
    if total > MOST_CLASSES:
        raise ValueError(f"{name}: labels must be class numbers below {MOST_CLASSES:,}, got {largest}")
    if smallest < 0 or largest >= total:
        raise ValueError(f"{name}: labels must lie in 0..{total - 1}, got values from {smallest} to {largest}")
    return total


CLASSIFICATION = Task(
    name="classification",
    inputs="images",
    targets="label",
    loss=functional.cross_entropy,
    count_correct=count_correct,
    make_metrics=make_metrics,
)
