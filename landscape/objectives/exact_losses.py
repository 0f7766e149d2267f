"""Classification losses whose curvature keeps its accuracy when a model fits its data well.

torch finds the probability of the right class as 1 - (the others) to rounding: once the others are below 1e-16 the
rounding is all there is, and the Hessian is neither right nor symmetric. Here everything is a function of the others
alone: -log p_y = log(1 + sum_{j != y} exp(z_j - z_y)).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

LARGE = 40.0  # log(1 + exp(x)) is x from here on, to every bit


class ExactLosses(TorchFunctionMode):
    """Losses computed inside are the exact ones where there is one."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        replacement = LOSSES.get(func)
        result = replacement(*args, **(kwargs or {})) if replacement is not None else None
        return func(*args, **(kwargs or {})) if result is None else result


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor | None:
    """torch's cross_entropy of class labels; None for weights, smoothing and whatever else is not plain."""
    plain = weight is None and size_average is None and reduce is None and label_smoothing == 0.0
    labelled = target.dtype == torch.int64 and input.dim() == target.dim() + 1
    if not plain or not labelled or input.dim() < 2 or input.shape[1] < 2:
        return None
    valid = target != ignore_index
    labels = torch.where(valid, target, 0).unsqueeze(1)
    others = (input - input.gather(1, labels)).scatter(1, labels, -torch.inf)
    values = functional.softplus(others.logsumexp(dim=1), threshold=LARGE)
    return _reduced(torch.where(valid, values, 0.0), reduction, valid.sum())


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor | None:
    """torch's binary_cross_entropy_with_logits; None where weights or shapes are not plain."""
    plain = weight is None and pos_weight is None and size_average is None and reduce is None
    if not plain or input.shape != target.shape:
        return None
    values = target * functional.softplus(-input, threshold=LARGE)
    values = values + (1 - target) * functional.softplus(input, threshold=LARGE)
    return _reduced(values, reduction, torch.tensor(values.numel()))


def _reduced(values: Tensor, reduction: str, count: Tensor) -> Tensor | None:
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    return values.sum() / count if reduction == "mean" else None


LOSSES: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
    functional.cross_entropy: cross_entropy,
    functional.binary_cross_entropy_with_logits: binary_cross_entropy_with_logits,
}
