"""Short looks before long work: is the loss a fixed function and a sum over examples, and how large may a chunk be?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from landscape.layout import running_statistics
from landscape.objectives import nests, outputs
from landscape.objectives.batches import Batch, examples, split_pair
from landscape.objectives.losses import Sums, advise_shapes
from landscape.runtime.memory import counting_saved
from landscape.runtime.replica import BATCH_NORM, Replica

if TYPE_CHECKING:
    from landscape.objectives.objective import Objective

CACHE = 32 * 2**20  # bytes of saved activations per chunk: 32-64 images of LeNet64, where its throughput peaks
DROPOUTS = (nn.modules.dropout._DropoutNd, nn.RReLU)
FEW = 32  # examples that are looked at
SMALL = 1e-2  # a sum of losses below this is compared by its absolute size: rounding of the outputs may be all of it


def look(objective: Objective, batches: Sequence[Batch], most: int | None) -> int | None:
    """Refuse what is not a fixed function; the size of a chunk that suits it, None where batches must stay whole."""
    batch = _some(batches[0], FEW)
    with objective._replicas.borrow() as replica:
        replica.load(objective.theta)
        _check_training(replica)
        objective.terms.inner_gradients = _differentiates(objective, replica, _some(batch, 4))
        if objective.terms.batch_loss is None:
            with objective.terms.evaluating():
                _check_outputs(objective, replica, batches)
        _check_deterministic(objective, replica, batch)
        with objective.terms.evaluating():
            if objective.terms.batch_loss is None:
                _check_loss(objective, replica, batch)
                adds_up = True
            else:
                adds_up = _adds_up(objective, replica, batch)
        fitting = _fitting_chunk(objective, replica, batches[0], most)
    if objective.batchnorm == "batch":
        return most or 256
    if not adds_up and most is not None:
        raise ValueError(
            "batch_loss gives a batch another sum of losses, or count, than its two halves together, so its batches "
            "cannot be cut: leave chunk_size out and give data in the batches that are meant"
        )
    return fitting if adds_up else None


def _check_training(replica: Replica) -> None:
    training = [name for name, part in replica.module.named_modules() if isinstance(part, BATCH_NORM) and part.training]
    if training:
        raise ValueError(
            f"BatchNorm is in training mode ({', '.join(training[:3])}): the loss would depend on how data are "
            "batched. Call model.eval(), or write mode='eval', or ask for batchnorm='batch'."
        )


def _differentiates(objective: Objective, replica: Replica, batch: Batch) -> bool:
    """Whether the model or the loss takes gradients itself: it then fails without graphs, but not with them."""
    failures = (RuntimeError, ValueError, TypeError, IndexError)
    try:
        with torch.inference_mode():
            objective.terms.sums(replica, batch)
        return False
    except failures:
        try:
            with torch.enable_grad():
                objective.terms.sums(replica, batch)
        except failures:
            return False  # the checks that follow will say what is wrong
        return True


def _check_outputs(objective: Objective, replica: Replica, batches: Sequence[Batch]) -> None:
    """Refuse inputs that the model does not take, and outputs that the loss does not take."""
    batch = _some(batches[0], FEW)
    inputs, _ = split_pair(batch)
    try:
        answer = objective.terms.predict(replica, batch)
    except (RuntimeError, TypeError) as error:
        shape = nests.describe(inputs)
        raise ValueError(f"the model does not take inputs of shape {shape}: {error}") from error
    if not isinstance(answer, Tensor) and objective.terms.loss.known:
        raise ValueError(
            f"the model returns {outputs.kind(answer)}, but this loss takes a tensor: say which with "
            f"{outputs.advise(answer)}, or give a loss that takes all of it"
        )
    if isinstance(answer, Tensor) and not answer.ndim:
        raise ValueError("the model must return outputs with the examples on their first axis, got one number")
    objective.terms.sample = nests.map_tensors(Tensor.detach, answer)
    objective.terms.learn(batches)


def _check_deterministic(objective: Objective, replica: Replica, batch: Batch) -> None:
    """Evaluate a few examples twice; refuse with the usual suspects if the answers differ."""
    losses = []
    with torch.random.fork_rng(devices=[]), objective.terms.evaluating():
        for seed in (0, 1):
            torch.manual_seed(seed)
            losses.append(_try(objective, replica, batch))
    first, second = losses
    if not math.isfinite(first):
        raise ValueError(f"the loss of {max(examples(batch), 1)} examples is {first}: are the inputs finite?")
    if abs(first - second) > 1e-6 + 5e-5 * abs(first):
        active = [name for name, part in replica.module.named_modules() if isinstance(part, DROPOUTS) and part.training]
        suspect = (
            f"layers in training mode: {', '.join(active[:3])}"
            if active
            else "dropout called as a function without training=self.training, noise or augmentation in forward()"
        )
        raise ValueError(
            f"the loss differs between two evaluations of the same data ({first:.6g} and {second:.6g}), so there "
            f"is no fixed function to analyse. Suspected: {suspect}. Call model.eval() or make it deterministic."
        )


def _try(objective: Objective, replica: Replica, batch: Batch) -> float:
    if objective.terms.batch_loss is not None:
        return _value(objective.terms.sums(replica, batch))
    predicted = objective.terms.predict(replica, batch)
    try:
        return _value(objective.terms.judge(predicted, batch))
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
        given, targets = nests.describe(predicted), nests.describe(split_pair(batch)[1])
        if not isinstance(predicted, Tensor):
            given = outputs.kind(predicted)
        raise ValueError(f"the loss does not take outputs {given} with targets {targets}: {error}") from error


def _check_loss(objective: Objective, replica: Replica, batch: Batch) -> None:
    """Refuse a loss that is not the sum over examples that it is taken for, and a model that mixes examples."""
    predicted, count = objective.terms.sample, examples(batch)
    for outputs_of_all in (predicted, *_telling(objective, predicted, batch)):
        _check_reduction(objective, outputs_of_all, batch)
        _check_parts(objective, replica, outputs_of_all, batch)
    if count < 2 or objective.batchnorm == "batch" or not _cut_alike(predicted, batch):
        return
    half = slice(0, count // 2)
    first = nests.take(batch, half)
    alone, among_others = (
        objective.terms.sums(replica, first),
        objective.terms.judge(nests.take(predicted, half), first),
    )
    if not _equal(objective, alone, [among_others]):
        raise ValueError(
            "the model gives an example other outputs when the rest of its batch changes, so the loss would depend on "
            "chunk_size: make the model treat examples one by one, or give batch_loss with the batches that are meant"
        )


def _telling(objective: Objective, predicted: Any, batch: Batch) -> list[Any]:
    """Other outputs for a model that fits its data, whose losses are too near zero to tell a sum from a mean.

    Each is a part of what it was: probabilities stay probabilities, and logarithms of them below zero.
    """
    if not _cut_alike(predicted, batch) or abs(_value(objective.terms.judge(predicted, batch))) > SMALL:
        return []
    generator = torch.Generator().manual_seed(0)

    def shrink(tensor: Tensor) -> Tensor:
        part = 1 - 0.5 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        return tensor * part.to(tensor) if tensor.is_floating_point() else tensor

    smaller = nests.map_tensors(shrink, predicted)
    try:
        value = _value(objective.terms.judge(smaller, batch))
    except (RuntimeError, ValueError, TypeError):  # a loss that takes only what the model gives
        return []
    return [smaller] if math.isfinite(value) else []


def _cut_alike(predicted: Any, batch: Batch) -> bool:
    """Whether the outputs have the examples of the batch on their first axes."""
    return (
        nests.can_be_cut(batch) and nests.can_be_cut(predicted) and nests.lengths(predicted)[0] == examples(batch) > 1
    )


def _check_parts(objective: Objective, replica: Replica, predicted: Any, batch: Batch) -> None:
    """Compare the loss of a batch with those of its parts.

    Parts are pairs where that needs no further pass: those of a few examples are more unlike than halves, which may
    agree by chance for a root of a mean or a ratio of sums.
    """
    count = examples(batch)
    if count < 2 or not nests.can_be_cut(batch):
        return
    if _cut_alike(predicted, batch):
        edges = [*range(0, count - 1, 2), count] if count > 3 else [0, 1, count]
        places = [slice(*ends) for ends in pairwise(edges)]
        parts = [objective.terms.judge(nests.take(predicted, place), nests.take(batch, place)) for place in places]
    elif objective.batchnorm != "batch":
        halves = (slice(0, count // 2), slice(count // 2, count))
        parts = [objective.terms.sums(replica, nests.take(batch, half)) for half in halves]
    else:
        return
    if not _equal(objective, objective.terms.judge(predicted, batch), parts):
        raise ValueError(_not_a_sum(predicted, split_pair(batch)[1]))


def _check_reduction(objective: Objective, predicted: Any, batch: Batch) -> None:
    """Compare with what the loss itself says of the batch: some that take a reduction do not follow torch's."""
    loss, sums = objective.terms.loss, objective.terms.judge(predicted, batch)
    if not loss.known or sums.count == 0:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of KLDivLoss("mean")
        own = loss.loss(predicted, split_pair(batch)[1])
    expected = float(own.detach().mean())
    found = loss.reduced(sums, examples(batch))
    if math.isfinite(expected) and not _close(objective, found, expected):
        raise ValueError(
            f"the loss with reduction='none' adds up to {found:.6g}, but with reduction='{loss.reduction}' it says "
            f"{expected:.6g}: give a callable that returns one value per example, or batch_loss"
        )


def _not_a_sum(predicted: Any, targets: Any) -> str:
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


def _adds_up(objective: Objective, replica: Replica, batch: Batch) -> bool:
    """Whether a batch_loss gives a batch the sums of its two halves, so that batches may be cut."""
    count = examples(batch)
    if not nests.can_be_cut(batch):
        return False
    if count < 2:
        return True
    whole = objective.terms.sums(replica, batch)
    try:
        halves = [
            objective.terms.sums(replica, nests.take(batch, half))
            for half in (slice(0, count // 2), slice(count // 2, count))
        ]
    except (RuntimeError, ValueError):  # made for batches of one size
        return False
    return _equal(objective, whole, halves)


def _value(sums: Sums) -> float:
    return float(sums.loss.detach())


def _equal(objective: Objective, whole: Sums, parts: Sequence[Sums]) -> bool:
    return _close(objective, _value(whole), sum(_value(part) for part in parts)) and _close(
        objective, whole.count, sum(part.count for part in parts)
    )


def _close(objective: Objective, first: float, second: float) -> bool:
    tolerance = max(1e-4, 100 * torch.finfo(objective.dtype).eps)
    return not math.isfinite(first) or abs(first - second) <= tolerance * max(abs(first), abs(second), SMALL)


def check_same(objective: Objective, module: nn.Module, theta: Tensor) -> None:
    """Refuse a module whose own loss on the first examples is not that of the objective at its vector."""

    moving = objective.batchnorm == "recomputed"  # the same statistics for both: neither's own count
    statistics = [one.to(theta) for one in running_statistics(module).values()] if moving else None

    def loss(replica: Replica) -> float:
        replica.load(theta, statistics)
        with objective.terms.evaluating():
            return _value(objective.terms.sums(replica, objective.chunks[0]))

    own = loss(Replica(module, objective.layout, objective.dtype, objective.device))
    with objective._replicas.borrow() as replica:
        found = loss(replica)
    if not _close(objective, own, found):
        raise ValueError(
            f"this model's loss on the first examples is a sum of {own:.6g}, but {found:.6g} for the objective's model "
            "with its parameters: the two differ in something that is not a tensor. Is one of another architecture or "
            "in another mode?"
        )


def _fitting_chunk(objective: Objective, replica: Replica, batch: Batch, most: int | None) -> int:
    """A power of two of examples whose saved activations stay near the cache, at most `most`.

    Depends on tensor sizes only, never on a clock, so that results are the same on every machine.
    """
    most = most or 1024
    cut = nests.can_be_cut(batch)
    piece = nests.take(batch, slice(0, 4)) if cut else batch
    try:
        with torch.enable_grad(), counting_saved([replica.flat, *nests.tensors(piece)]) as saved:
            sums = objective.terms.sums(replica, piece)
    except RuntimeError:  # torch.func inside the loss allows no counting
        objective.terms.inner_gradients, objective.terms.countable = True, False
        with torch.enable_grad():
            sums = objective.terms.sums(replica, piece)
    if not sums.loss.requires_grad:
        objective.terms.fault = (
            "the loss does not depend on the parameters in a way that torch can differentiate: is there a .detach(), "
            ".item(), float() or torch.no_grad() in it, or a step such as argmax?"
        )
    if not cut or not objective.terms.countable:
        return most
    each = max(saved.all() / max(examples(piece), 1), 1)
    return min(1 << int(math.log2(max(CACHE / each, 8))), most)


def _some(batch: Batch, count: int) -> Batch:
    """A few examples, evenly spread over the batch; all of a batch that cannot be cut."""
    total = examples(batch)
    if not nests.can_be_cut(batch) or total <= count:
        return batch
    return nests.take(batch, torch.linspace(0, total - 1, count).round().long())
