"""Turn a user's loss into sums over examples, whatever reduction it was written with."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Loss = Callable[..., Tensor]
CLASS_LOSSES = (functional.cross_entropy, functional.nll_loss)
CLASS_MODULES = (nn.CrossEntropyLoss, nn.NLLLoss)
# A network that fits its data has probabilities 1 - p near float32's rounding: from there on its curvature p (1 - p)
# is noise, and its Hessian not even symmetric. Up to so many classes the loss is taken in float64: it costs nothing.
EXACT_CLASSES = 4096


@dataclass(frozen=True)
class Sums:
    """What one chunk contributes; totals are divided once, at the end."""

    loss: Tensor  # () sum of losses
    count: float  # what the mean divides by: examples, valid tokens or total class weight
    squares: float  # sum of squared losses, for standard errors; NaN when only a mean is known
    elements: int  # number of separate losses that were summed
    errors: float  # number of wrong predictions; NaN for targets that are not class labels
    labelled: int  # number of predictions that could be wrong


class SummedLoss:
    """A loss as sums: a torch loss (function, module or partial), or any callable (outputs, targets).

    A callable without a `reduction` argument may return one value per example, or a scalar that is taken
    as the mean over the examples of the batch.
    """

    def __init__(self, loss: Loss):
        self.loss = loss
        self.elementwise: Loss | None = None
        self.weight: Tensor | None = None
        self.ignore_index: int | None = None
        inner, given = (loss.func, loss.keywords) if isinstance(loss, functools.partial) else (loss, {})
        if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
            module = copy.deepcopy(loss)
            module.reduction = "none"  # type: ignore[assignment]
            self.elementwise = module
            if isinstance(loss, CLASS_MODULES):
                self.weight, self.ignore_index = loss.weight, loss.ignore_index
        elif not isinstance(loss, nn.Module) and "reduction" in _arguments(inner):
            self.elementwise = functools.partial(loss, reduction="none")
            if inner in CLASS_LOSSES:
                self.weight, self.ignore_index = given.get("weight"), given.get("ignore_index", -100)

    def __call__(self, outputs: Tensor, targets: Any) -> Sums:
        examples = outputs.shape[0]
        values = (self.elementwise or self.loss)(self._exact(outputs, targets), targets)
        errors, labelled = count_errors(outputs.detach(), targets, self.ignore_index)
        if values.ndim == 0:
            if self.elementwise is None:
                return Sums(values * examples, float(examples), float("nan"), examples, errors, labelled)
            values = values.reshape(1)
        detached = values.detach().double()
        return Sums(
            values.sum(),
            self._count(values, targets),
            float(detached.square().sum()),
            values.numel(),
            errors,
            labelled,
        )

    def _exact(self, outputs: Tensor, targets: Any) -> Tensor:
        """Class scores in float64, where the loss is known to take them."""
        plain = self.ignore_index is not None and self.weight is None and not targets.is_floating_point()
        small = (
            outputs.ndim > 1 and outputs.shape[1] <= EXACT_CLASSES and outputs.device.type != "mps"
        )  # has no float64
        return outputs.double() if plain and small else outputs

    def _count(self, values: Tensor, targets: Any) -> float:
        if self.ignore_index is None or targets.is_floating_point():
            return float(values.numel())
        valid = targets != self.ignore_index
        if self.weight is None:
            return float(valid.sum())
        return float(self.weight[targets[valid]].double().sum())


def count_errors(outputs: Tensor, targets: Any, ignore_index: int | None) -> tuple[float, int]:
    """How many arg-max predictions (class axis 1) differ from integer labels; NaN where that has no meaning."""
    if not isinstance(targets, Tensor) or targets.is_floating_point() or outputs.ndim != targets.ndim + 1:
        return float("nan"), 0
    wrong = outputs.argmax(dim=1) != targets
    if ignore_index is not None:
        valid = targets != ignore_index
        return float((wrong & valid).sum()), int(valid.sum())
    return float(wrong.sum()), targets.numel()


def check_labels(loss: SummedLoss, shape: Sequence[int], targets: Any) -> None:
    """Refuse class labels that the model has no output for, before torch fails deep inside a kernel.

    shape: of the model's outputs, whatever the number of examples.
    """
    if loss.ignore_index is None or not isinstance(targets, Tensor) or targets.is_floating_point():
        return
    classes = shape[1] if len(shape) > 1 else shape[0]
    valid = targets[targets != loss.ignore_index]
    if valid.numel() and (int(valid.min()) < 0 or int(valid.max()) >= classes):
        raise ValueError(
            f"labels must lie in 0..{classes - 1} (the model has {classes} outputs), "
            f"got values from {int(valid.min())} to {int(valid.max())}"
        )
    expected = (len(targets), *shape[2:])
    if tuple(targets.shape) != expected:
        raise ValueError(f"labels must have shape {expected}, got {tuple(targets.shape)}")


def _arguments(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def class_labels(targets: Any) -> Tensor | None:
    """Integer labels, one per example, if that is what the targets are."""
    if isinstance(targets, Tensor) and targets.ndim == 1 and not targets.is_floating_point():
        return targets.to(torch.int64)
    return None
