"""Is the loss of a batch the sum over its examples? Tested on a few examples before any other work."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from landscape.losses import nests
from landscape.losses.batches import Batch, examples, split_pair
from landscape.losses.chunk_loss import ChunkLoss
from landscape.losses.nests import Nest
from landscape.losses.summed_loss import Sums, advise_shapes
from landscape.runtime.replica import Replica

SMALL = 1e-2  # a sum of losses below this is compared by its absolute size: rounding of the outputs may be all of it


def check_loss(loss: ChunkLoss, replica: Replica, batch: Batch, batchnorm: str) -> None:
    """Refuse a loss that is not the sum over examples that it is taken for, and a model that mixes examples."""
    predicted, count, dtype = loss.sample, examples(batch), replica.flat.dtype
    mixing = batchnorm == "batch"  # examples of a batch depend on each other on purpose
    for outputs in (predicted, *_vary_outputs(loss, predicted, batch)):
        _check_reduction(loss, outputs, batch, dtype)
        _check_parts(loss, replica, outputs, batch, mixing)
    if count < 2 or mixing or not _are_parallel(predicted, batch):
        return
    half = slice(0, count // 2)
    first = nests.take(batch, half)
    alone, among_others = loss.compute(replica, first), loss.score(nests.take(predicted, half), first)
    if not _equal(alone, [among_others], dtype):
        raise ValueError(
            "the model gives an example other outputs when the rest of its batch changes, so the loss would depend on "
            "chunk_size: make the model treat examples one by one, or give batch_loss with the batches that are meant"
        )


def adds_up(loss: ChunkLoss, replica: Replica, batch: Batch) -> bool:
    """Whether a batch_loss gives a batch the sums of its two halves, so that batches may be cut."""
    count = examples(batch)
    if not nests.can_be_cut(batch):
        return False
    if count < 2:
        return True
    whole = loss.compute(replica, batch)
    try:
        halves = [
            loss.compute(replica, nests.take(batch, half)) for half in (slice(0, count // 2), slice(count // 2, count))
        ]
    except (RuntimeError, ValueError):  # made for batches of one size
        return False
    return _equal(whole, halves, replica.flat.dtype)


def close(first: float, second: float, dtype: torch.dtype) -> bool:
    """Whether two sums of losses are equal up to rounding in this precision; anything is close to infinity."""
    tolerance = max(1e-4, 100 * torch.finfo(dtype).eps)
    return not math.isfinite(first) or abs(first - second) <= tolerance * max(abs(first), abs(second), SMALL)


def _vary_outputs(loss: ChunkLoss, predicted: Nest, batch: Batch) -> list[Nest]:
    """Other outputs for a model that fits its data, whose losses are too near zero to tell a sum from a mean.

    Each is a part of what it was: probabilities stay probabilities, and logarithms of them below zero.
    """
    if not _are_parallel(predicted, batch) or abs(loss.score(predicted, batch).value) > SMALL:
        return []
    generator = torch.Generator().manual_seed(0)

    def shrink(tensor: Tensor) -> Tensor:
        part = 1 - 0.5 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        return tensor * part.to(tensor) if tensor.is_floating_point() else tensor

    smaller = nests.map_tensors(shrink, predicted)
    try:
        value = loss.score(smaller, batch).value
    except (RuntimeError, ValueError, TypeError):  # a loss that takes only what the model gives
        return []
    return [smaller] if math.isfinite(value) else []


def _are_parallel(predicted: Nest, batch: Batch) -> bool:
    """Whether the outputs have the examples of the batch on their first axes."""
    return (
        nests.can_be_cut(batch) and nests.can_be_cut(predicted) and nests.lengths(predicted)[0] == examples(batch) > 1
    )


def _check_parts(loss: ChunkLoss, replica: Replica, predicted: Nest, batch: Batch, mixing: bool) -> None:
    """Compare the loss of a batch with those of its parts.

    Parts are pairs where that needs no further pass: those of a few examples are more unlike than halves, which may
    agree by chance for a root of a mean or a ratio of sums.
    """
    count = examples(batch)
    if count < 2 or not nests.can_be_cut(batch):
        return
    if _are_parallel(predicted, batch):
        edges = [*range(0, count - 1, 2), count] if count > 3 else [0, 1, count]
        slices = [slice(*ends) for ends in pairwise(edges)]
        parts = [loss.score(nests.take(predicted, some), nests.take(batch, some)) for some in slices]
    elif not mixing:
        halves = (slice(0, count // 2), slice(count // 2, count))
        parts = [loss.compute(replica, nests.take(batch, half)) for half in halves]
    else:
        return
    if not _equal(loss.score(predicted, batch), parts, replica.flat.dtype):
        raise ValueError(_describe_mismatch(predicted, split_pair(batch)[1]))


def _check_reduction(loss: ChunkLoss, predicted: Nest, batch: Batch, dtype: torch.dtype) -> None:
    """Compare with what the loss itself says of the batch: some that take a reduction do not follow torch's."""
    summed, sums = loss.loss, loss.score(predicted, batch)
    if not summed.known or sums.count == 0:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of KLDivLoss("mean")
        own = summed.loss(predicted, split_pair(batch)[1])
    expected = float(own.detach().mean())
    found = summed.reduce(sums, examples(batch))
    if math.isfinite(expected) and not close(found, expected, dtype):
        raise ValueError(
            f"the loss with reduction='none' adds up to {found:.6g}, but with reduction='{summed.reduction}' it says "
            f"{expected:.6g}: give a callable that returns one value per example, or batch_loss"
        )


def _describe_mismatch(predicted: object, targets: object) -> str:
    shapes = ""
    if isinstance(predicted, Tensor) and isinstance(targets, Tensor) and predicted.shape != targets.shape:
        shapes = f" Outputs have shape {tuple(predicted.shape)}, targets {tuple(targets.shape)}"
        if predicted.numel() == targets.numel():
            shapes += f", and may have been compared all with all: {advise_shapes(predicted, targets)}"
        shapes += "."
    return (
        "the loss of a batch is not the mean of its parts, so it is no mean over examples (a sum, a mean over "
        f"tokens or weights that differ in number, or a comparison between examples).{shapes} Return one value per "
        "example, use torch's loss itself (its reduction, weight and ignore_index are understood), or give batch_loss"
    )


def _equal(whole: Sums, parts: Sequence[Sums], dtype: torch.dtype) -> bool:
    return close(whole.value, sum(part.value for part in parts), dtype) and close(
        whole.count, sum(part.count for part in parts), dtype
    )
