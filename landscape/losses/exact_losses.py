"""Classification losses whose curvature keeps its accuracy when a model fits its data well.

torch computes the probability of the right class as 1 - (the others), up to rounding: once the others are below 1e-16
only rounding is left, and the Hessian is neither right nor symmetric. Here everything is a function of the others
alone: -log p_y = log(1 + sum_{j != y} exp(z_j - z_y)).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

LARGE = 40.0  # log(1 + exp(x)) is x from here on, to every bit


class ExactLosses(TorchFunctionMode):
    """A context in which the losses below replace torch's."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Collection[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
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
    """torch's cross_entropy of class labels; None with weights, smoothing and other options, which torch computes."""
    plain = weight is None and size_average is None and reduce is None and label_smoothing == 0.0
    labelled = target.dtype == torch.int64 and input.dim() == target.dim() + 1
    if not plain or not labelled or input.dim() < 2 or input.shape[1] < 2:
        return None
    valid = target != ignore_index
    labels = torch.where(valid, target, 0).unsqueeze(1)
    others = (input - input.gather(1, labels)).scatter(1, labels, -torch.inf)
    values = functional.softplus(others.logsumexp(dim=1), threshold=LARGE)
    return _reduce(torch.where(valid, values, 0.0), reduction, valid.sum())


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor | None:
    """torch's binary_cross_entropy_with_logits; None with weights or unlike shapes, which torch computes."""
    plain = weight is None and pos_weight is None and size_average is None and reduce is None
    if not plain or input.shape != target.shape:
        return None
    values = target * functional.softplus(-input, threshold=LARGE)
    values = values + (1 - target) * functional.softplus(input, threshold=LARGE)
    return _reduce(values, reduction, torch.tensor(values.numel()))


def _reduce(values: Tensor, reduction: str, count: Tensor) -> Tensor | None:
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    return values.sum() / count if reduction == "mean" else None


LOSSES: dict[Callable[..., object], Callable[..., Tensor | None]] = {
    functional.cross_entropy: cross_entropy,
    functional.binary_cross_entropy_with_logits: binary_cross_entropy_with_logits,
}
