"""Turn a user's loss into sums over examples that keep what the loss means.

reduction    what the objective is, over all its data           what each example contributes
"mean"       torch's mean over elements, or its weighted mean   the sum of its losses, and their number or weight
"sum"        the sum divided by the number of examples          the sum of its losses, and 1
"batchmean"  the same: that is what it means for a batch        the sum of its losses, and 1
"none"       the mean over elements                             the sum of its losses, and their number
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.losses.batches import move
from landscape.losses.nests import Nest
from landscape.runtime.device import choose_sum_device, has_float64, to_float64

Loss = Callable[..., Tensor]
CLASS_LOSSES = (functional.cross_entropy, functional.nll_loss)
CLASS_MODULES = (nn.CrossEntropyLoss, nn.NLLLoss)
REDUCTIONS = ("mean", "sum", "batchmean", "none")
# losses that compare outputs with targets one by one: torch lets (B, 1) meet (B,) and compares all with all
ALIKE: tuple[Loss, ...] = (
    functional.mse_loss,
    functional.l1_loss,
    functional.smooth_l1_loss,
    functional.huber_loss,
    functional.kl_div,
    functional.poisson_nll_loss,
    functional.binary_cross_entropy,
    functional.binary_cross_entropy_with_logits,
    functional.soft_margin_loss,
    functional.hinge_embedding_loss,
    functional.multilabel_soft_margin_loss,
)
BINARY: tuple[Loss, ...] = (functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits)
ALIKE_MODULES = (
    nn.MSELoss,
    nn.L1Loss,
    nn.SmoothL1Loss,
    nn.HuberLoss,
    nn.KLDivLoss,
    nn.PoissonNLLLoss,
    nn.BCELoss,
    nn.BCEWithLogitsLoss,
    nn.SoftMarginLoss,
    nn.HingeEmbeddingLoss,
    nn.MultiLabelSoftMarginLoss,
)
# A network that fits its data has probabilities 1 - p near float32's rounding: from there on its curvature p (1 - p)
# is noise, and its Hessian not even symmetric. Up to so many classes the loss is taken in float64: it costs nothing.
EXACT_CLASSES = 4096
# ... unless an example has many predictions: 19 classes of 512 x 1024 pixels are 80 MB in float64. Beyond so many
# scores of an example (2 MB) they stay as they are, and only the sum of the losses is taken in float64.
EXACT_SCORES = 2**18


@dataclass(frozen=True)
class Sums:
    """What one chunk contributes; totals are divided once, at the end."""

    loss: Tensor  # () sum of losses
    count: float  # what the mean divides by: examples, elements, valid tokens or total class weight
    each: Tensor | None = None  # (examples, 2) float64, the sum and the count of every example; None: not known
    errors: float = 0.0  # number of wrong predictions
    labelled: float = 0.0  # number of predictions that could be wrong; 0: errors are not known
    each_error: Tensor | None = None  # (examples, 2) float64, errors and labelled of every example

    @property
    def value(self) -> float:
        """The sum of losses as a number, without its graph."""
        return float(self.loss.detach())


class SummedLoss:
    """A loss as sums over examples.

    loss: a torch loss (function, module or partial), or any callable (outputs, targets).
    device: where its weights are moved.
    dtype: their precision.

    A callable without a `reduction` argument may return one value per example or a block of values (B, ...), of which
    the mean over elements is taken, or one number that is the mean over the examples of the batch.
    """

    def __init__(self, loss: Loss, device: torch.device, dtype: torch.dtype):
        if isinstance(loss, type):
            raise ValueError(f"loss is the class {loss.__name__}, not a loss: write {loss.__name__}()")
        if not callable(loss):
            raise ValueError(
                "loss must be a torch loss such as torch.nn.functional.cross_entropy, or a callable (outputs, "
                f"targets), got {loss!r}"
            )
        self.loss = _move_loss(loss, device, dtype)
        self.elementwise: Loss | None = None  # the same with reduction="none"
        self.reduction = "mean"
        self.weight: Tensor | None = None
        self.ignore_index: int | None = None  # of a loss of class labels; None for any other
        inner, given = _unwrap(self.loss)
        self.alike = isinstance(loss, ALIKE_MODULES) or inner in ALIKE
        binary = isinstance(loss, (nn.BCELoss, nn.BCEWithLogitsLoss)) or inner in BINARY
        self.regression = self.alike and not binary  # targets 0 and 1 are numbers to it, not labels
        if isinstance(self.loss, nn.Module):
            self._read_module(self.loss)
        elif "reduction" in _list_arguments(inner):
            self._read_function(inner, given)
        if self.reduction not in REDUCTIONS:
            raise ValueError(
                f"the loss has reduction={self.reduction!r}, whose meaning is not known; use one of "
                f"{', '.join(REDUCTIONS)}, or a callable that returns one value per example"
            )

    def _read_module(self, module: nn.Module) -> None:
        if not isinstance(getattr(module, "reduction", None), str):
            return
        self.reduction = str(module.reduction)
        separate = copy.deepcopy(module)
        separate.reduction = "none"  # type: ignore[assignment]
        self.elementwise = separate
        if isinstance(module, CLASS_MODULES):
            self.weight, self.ignore_index = module.weight, module.ignore_index

    def _read_function(self, inner: Loss, given: dict[str, Nest]) -> None:
        if given.get("size_average") is not None or given.get("reduce") is not None:
            raise ValueError("size_average and reduce are deprecated in torch: write reduction='mean' or 'sum'")
        default = inspect.signature(inner).parameters["reduction"].default
        self.reduction = given.get("reduction", "mean" if default is inspect.Parameter.empty else default)
        self.elementwise = functools.partial(self.loss, reduction="none")
        if inner in CLASS_LOSSES:
            self.weight, self.ignore_index = given.get("weight"), given.get("ignore_index", -100)

    @property
    def known(self) -> bool:
        """Whether it is a torch loss or follows torch's convention of a reduction; it then takes tensors only."""
        return self.elementwise is not None

    def __call__(self, outputs: Nest, targets: Nest, examples: int, each: bool = False) -> Sums:
        """The sum of the losses and its divisor.

        outputs: of the model.
        targets: of the same examples.
        examples: how many.
        each: whether to return those of every example as well.
        """
        if isinstance(outputs, Tensor) and isinstance(targets, Tensor):
            self._check_alike(outputs, targets)
            outputs = self._raise_precision(outputs, targets)
        values = (self.elementwise or self.loss)(outputs, targets)
        if not isinstance(values, Tensor):
            raise ValueError(f"the loss must return a tensor, got {type(values).__name__}")
        if values.ndim == 0:
            return Sums(values * examples, float(examples))
        if len(values) != examples:
            raise ValueError(
                f"the loss must return one number, or values of shape ({examples}, ...) for {examples} examples, got "
                f"shape {tuple(values.shape)}: if it lists all elements, end it with .reshape({examples}, -1)"
            )
        counts = self._count(values, targets)
        pairs = None
        if each:
            sums = to_float64(values.detach()).reshape(examples, -1).sum(dim=1)
            pairs = torch.stack([sums, counts.to(sums)], dim=1)
        many = self.ignore_index is not None and values.numel() > examples and has_float64(values.device)
        exact = torch.float64 if many else None
        return Sums(values.sum(dtype=exact), float(counts.sum()), pairs)

    def reduce(self, sums: Sums, examples: int) -> float:
        """The value that the loss itself would give one batch with these sums."""
        return sums.value / {"sum": 1.0, "batchmean": float(examples)}.get(self.reduction, sums.count)

    def _raise_precision(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Class scores in float64, where the loss is known to take them."""
        plain = self.ignore_index is not None and self.weight is None and not targets.is_floating_point()
        few = outputs.ndim > 1 and outputs.shape[1] <= EXACT_CLASSES and outputs.numel() <= EXACT_SCORES * len(outputs)
        return outputs.double() if plain and few and has_float64(outputs.device) else outputs

    def _count(self, values: Tensor, targets: Nest) -> Tensor:
        """(examples,) float64: what each example adds to the divisor."""
        examples = len(values)
        if self.reduction in ("sum", "batchmean"):
            return torch.ones(examples, dtype=torch.float64)
        if self.ignore_index is None or targets.is_floating_point() or self.reduction == "none":
            return torch.full((examples,), values.numel() / examples, dtype=torch.float64)
        counts: Tensor = targets != self.ignore_index
        if self.weight is not None:
            counts = to_float64(self.weight[torch.where(counts, targets, 0)] * counts)
        return counts.to(choose_sum_device(counts.device)).reshape(examples, -1).sum(dim=1, dtype=torch.float64)

    def _check_alike(self, outputs: Tensor, targets: Tensor) -> None:
        if self.alike and outputs.shape != targets.shape:
            raise ValueError(
                f"this loss compares outputs and targets one by one, but they have shapes {tuple(outputs.shape)} and "
                f"{tuple(targets.shape)}: {advise_shapes(outputs, targets)}"
            )


def advise_shapes(outputs: Tensor, targets: Tensor) -> str:
    """How to bring outputs and targets to one shape."""
    if outputs.numel() == targets.numel():
        return f"reshape the targets to {tuple(outputs.shape)} (or the outputs to {tuple(targets.shape)})"
    return "give targets of the outputs' shape"


def read_batch_loss(result: object, examples: int) -> Sums:
    """Read what a batch_loss returned: (sum of losses, count[, errors]), each one number or one per example."""
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        raise ValueError(
            "batch_loss(model, batch) must return (sum of losses, count) or (sum, count, errors), "
            f"got {type(result).__name__}"
        )
    total, count, *rest = result
    names = ("the sum of losses", "the count", "the errors")
    for name, value in zip(names, result, strict=False):
        if isinstance(value, Tensor) and value.ndim and value.shape != (examples,):
            raise ValueError(
                f"batch_loss: {name} must be one number or one per example, shape ({examples},); got shape "
                f"{tuple(value.shape)}"
            )
    loss = total if isinstance(total, Tensor) else torch.tensor(float(total), dtype=torch.float64)
    counts = _each(count)
    if counts is None and float(count) == examples:
        counts = torch.ones(examples, dtype=torch.float64)
    whole = float(count) if counts is None else float(counts.sum())
    errors = rest[0] if rest else 0.0
    return Sums(
        loss.sum(),
        whole,
        _pairs(_each(loss), counts),
        float(errors.sum() if isinstance(errors, Tensor) else errors),
        whole if rest else 0.0,
        _pairs(_each(errors), counts),
    )


def _each(value: object) -> Tensor | None:
    """(examples,) float64 if it is one number per example."""
    return to_float64(value.detach()).cpu() if isinstance(value, Tensor) and value.ndim else None


def _pairs(sums: Tensor | None, counts: Tensor | None) -> Tensor | None:
    return None if sums is None or counts is None else torch.stack([sums, counts], dim=1)


def check_labels(loss: SummedLoss, shape: Sequence[int], targets: object) -> None:
    """Refuse class labels that the model has no output for, before torch fails deep inside a kernel.

    loss: of the objective.
    shape: of the model's outputs; the number of examples may be another.
    targets: labels to check.
    """
    if loss.ignore_index is None or not isinstance(targets, Tensor) or targets.is_floating_point():
        return
    classes = shape[1] if len(shape) > 1 else shape[0]
    valid = targets[targets != loss.ignore_index]
    if valid.numel() and (int(valid.min()) < 0 or int(valid.max()) >= classes):
        sequence = len(shape) > 2 and tuple(shape[:-1]) == (shape[0], *targets.shape[1:])
        raise ValueError(
            f"labels must lie in 0..{classes - 1} (the model has {classes} outputs), "
            f"got values from {int(valid.min())} to {int(valid.max())}" + (f". {CLASS_AXIS}" if sequence else "")
        )
    expected = (len(targets), *shape[2:])
    if tuple(targets.shape) != expected:
        sequence = tuple(shape[1:-1]) == tuple(targets.shape[1:]) and len(shape) > 2
        raise ValueError(
            f"labels must have shape {expected}, got {tuple(targets.shape)}" + (f". {CLASS_AXIS}" if sequence else "")
        )


CLASS_AXIS = "Torch's losses of class labels have the classes on axis 1: write outputs=lambda o: o.transpose(1, -1)"


def _move_loss(loss: Loss, device: torch.device, dtype: torch.dtype) -> Loss:
    """The same loss with its weights on the device, in the given precision."""
    if isinstance(loss, nn.Module):
        return copy.deepcopy(loss).to(device=device, dtype=dtype)
    if isinstance(loss, functools.partial):
        return functools.partial(loss.func, *loss.args, **move(loss.keywords, device, dtype))
    return loss


def _unwrap(loss: Loss) -> tuple[Loss, dict[str, Nest]]:
    return (loss.func, loss.keywords) if isinstance(loss, functools.partial) else (loss, {})


def _list_arguments(function: Callable[..., object]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()
