"""What a subject's models compute, and how their predictions compare with the truth."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.subjects import Subject
from landscape.runtime import outputs
from training.data.dealing import Ints
from training.tasks.task import count_confusion

PIXEL_CHUNK = 16  # images at once where every pixel has logits


def compute_outputs(subject: Subject, theta: Tensor, inputs: Tensor) -> outputs.Outputs:
    """Logits and features under the subject's policy for norm layers.

    theta: weights, followed by running statistics where there are norm layers.
    inputs: examples as the network sees them.

    The outputs are on the CPU.
    """
    return outputs.compute_outputs(subject.model, theta, inputs, **subject.computing)


@dataclass(frozen=True)
class Judgement:
    """How a model's predictions compare with the truth.

    confusion: (classes, classes) predictions of each true class (rows) by the class that the model gives (columns).
    norms: L2 norms of the features and of the logits of every example; None where targets are label maps.
    """

    confusion: Ints
    norms: tuple[Tensor, Tensor] | None


def judge(subject: Subject, theta: Tensor, inputs: Tensor, targets: Tensor) -> Judgement:
    """Compare a model's predictions, of examples or of their pixels, with the truth.

    theta: weights, followed by running statistics where there are norm layers.
    inputs, targets: examples as the network sees them.
    """
    targets, task, classes = targets.cpu(), subject.task, subject.classes
    labels = task.targets == "label"
    size = len(targets) if labels else PIXEL_CHUNK  # logits of all pixels would not fit in memory
    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    for some, true in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
        found = compute_outputs(subject, theta, some)
        confusion += count_confusion(found.predicted, true, classes, task.ignored)
    norms = (found.features.double().norm(dim=1), found.logits.double().norm(dim=1)) if labels else None
    return Judgement(confusion.numpy(), norms)
