"""When is a prediction wrong? Decided once, from the loss and the shapes; in doubt nothing is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from landscape.losses.nests import Nest
from landscape.losses.summed_loss import SummedLoss
from landscape.runtime.device import to_float64

THRESHOLDS = (0.0, 0.5)  # of logits, of probabilities
COUNT_THEM = "count them yourself: batch_loss=(model, batch) -> (sum, count, errors)"


@dataclass(frozen=True)
class ErrorCounter:
    """How predictions are compared with targets."""

    kind: str  # "classes": arg-max over axis 1; "binary": one output against a threshold; "none"
    why: str = ""  # for "none": why errors are not counted, and what to do
    threshold: float = 0.0
    ignore_index: int | None = None

    def count(self, outputs: Nest, targets: Nest, examples: int, each: bool) -> tuple[float, float, Tensor | None]:
        """Count wrong predictions.

        outputs: of the model.
        targets: of the same examples.
        examples: how many.
        each: whether to count for every example as well.

        Returns wrong predictions, all predictions, and both for every example (examples, 2) or None.
        """
        if self.kind == "none":
            return 0.0, 0.0, None
        if self.kind == "binary":
            wrong = (outputs.reshape(-1) > self.threshold) != (targets.reshape(-1) > 0.5)
            valid = torch.ones_like(wrong)
        else:
            wrong = outputs.argmax(dim=1) != targets
            valid = torch.ones_like(wrong) if self.ignore_index is None else targets != self.ignore_index
        wrong &= valid
        pairs = None
        if each:
            pairs = torch.stack([to_float64(part.reshape(examples, -1).sum(dim=1)) for part in (wrong, valid)], dim=1)
        return float(wrong.sum()), float(valid.sum()), pairs


def find_error_counter(loss: SummedLoss, outputs: Nest, targets: Sequence[Nest]) -> ErrorCounter:
    """Decide how errors are counted.

    loss: of the objective.
    outputs: of the model, for a few examples.
    targets: of every batch.
    """
    if not isinstance(outputs, Tensor) or not all(isinstance(one, Tensor) for one in targets):
        return ErrorCounter("none", "outputs or targets are not single tensors. Name the class scores with outputs=")
    labels = not any(one.is_floating_point() for one in targets)
    if loss.ignore_index is not None and labels:
        return ErrorCounter("classes", ignore_index=loss.ignore_index)
    if not loss.regression and outputs.numel() == len(outputs) and all(_are_binary(one) for one in targets):
        return _find_threshold(loss, outputs, targets[0])
    if not labels:
        return ErrorCounter("none", "targets are not integer class labels")
    if outputs.ndim == 2 and all(one.ndim == 1 and _are_within(one, outputs.shape[1]) for one in targets):
        return ErrorCounter("classes")
    return ErrorCounter(
        "none",
        f"outputs {tuple(outputs.shape)} with labels {tuple(targets[0].shape)} and a loss of your own do not say which "
        "axis holds the classes, or which labels do not count. Use torch's cross_entropy on outputs "
        f"(B, classes, ...), or {COUNT_THEM}",
    )


def _are_binary(targets: Tensor) -> bool:
    return targets.numel() == len(targets) and bool(((targets == 0) | (targets == 1)).all())


def _are_within(labels: Tensor, classes: int) -> bool:
    return not labels.numel() or (int(labels.min()) >= 0 and int(labels.max()) < classes)


def _find_threshold(loss: SummedLoss, outputs: Tensor, targets: Tensor) -> ErrorCounter:
    """Ask the loss on which side of which threshold it prefers which label."""
    targets = targets[:1]
    outputs = outputs[:1]

    def prefers_one(output: float) -> bool:
        score = torch.full_like(outputs, output)
        zero, one = (float(loss(score, torch.full_like(targets, label), 1).loss) for label in (0, 1))
        return one < zero

    for threshold in THRESHOLDS:
        try:
            if prefers_one(threshold + 0.25) and not prefers_one(threshold - 0.25):
                return ErrorCounter("binary", threshold=threshold)
        except (RuntimeError, ValueError):  # a logarithm of what is no probability
            continue
    return ErrorCounter(
        "none", f"the loss does not say whether the one output is a logit or a probability; {COUNT_THEM}"
    )
