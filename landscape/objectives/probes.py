"""Short tests before long work: is the loss a fixed function of theta, and how large should a chunk be?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from landscape.layout import running_statistics
from landscape.losses import nests, outputs
from landscape.losses.batches import Batch, examples, split_pair
from landscape.losses.chunk_loss import ChunkLoss
from landscape.objectives.additivity import adds_up, check_loss, close
from landscape.objectives.chunked_data import ChunkSizes
from landscape.runtime.device import CPU
from landscape.runtime.memory import allowance, count_saved
from landscape.runtime.replica import BATCH_NORM, Replica

if TYPE_CHECKING:
    from landscape.objectives.objective import Objective

CACHE = 32 * 2**20  # bytes of saved activations per chunk: 32-64 images of LeNet64, where its throughput peaks
# times as many for curvature: each of the hundreds of steps of a product waits for the interpreter. With 64 images at
# once instead of 16 a product of ResNet-20 takes a fifth less time; more gain nothing
LARGER = 4
WORKING = 8  # what a Hessian product holds, in saved activations of the forward pass
DROPOUTS = (nn.modules.dropout._DropoutNd, nn.RReLU)
FEW = 32  # examples that are tested


def probe(
    loss: ChunkLoss,
    replica: Replica,
    batches: Sequence[Batch],
    batchnorm: str,
    most: int | None,
    memory: int | None = None,
) -> tuple[ChunkLoss, ChunkSizes | None]:
    """Refuse what is not a fixed function of theta, and find out what later work needs to know.

    loss: as the user gave it.
    replica: a copy of the model with theta loaded.
    batches: all data.
    batchnorm: the policy for norm layers.
    most: the largest chunk that the user allows; None: any.
    memory: bytes that the user allows; None: what is usual.

    Returns the loss with what was found out, and the sizes of chunks; None where batches must stay whole.
    """
    batch = _choose_some(batches[0], FEW)
    _check_training(replica)
    loss = replace(loss, inner_gradients=_takes_gradients(loss, replica, _choose_some(batch, 4)))
    if loss.batch_loss is None:
        with loss.disable_graphs():
            loss = replace(loss, sample=_check_outputs(loss, replica, batch)).adapt(batches)
    _check_deterministic(loss, replica, batch)
    with loss.disable_graphs():
        if loss.batch_loss is None:
            check_loss(loss, replica, batch, batchnorm)
            divisible = True
        else:
            divisible = adds_up(loss, replica, batch)
    loss, fitting = _find_chunk_sizes(loss, replica, batches[0], most, memory)
    if batchnorm == "batch":
        return loss, ChunkSizes(most or 256, most or 256)
    if not divisible and most is not None:
        raise ValueError(
            "batch_loss gives a batch another sum of losses, or count, than its two halves together, so its batches "
            "cannot be cut: leave chunk_size out and give data in the batches that are meant"
        )
    return loss, fitting if divisible else None


def check_same_loss(objective: Objective, module: nn.Module, theta: Tensor) -> None:
    """Refuse a module whose own loss on the first examples is not that of the objective at its vector."""
    moving = objective.batchnorm == "recomputed"  # the same statistics for both: neither's own count
    statistics = [one.to(theta) for one in running_statistics(module).values()] if moving else None

    def compute(replica: Replica) -> float:
        replica.load(theta, statistics)
        with objective.chunk_loss.disable_graphs():
            return objective.chunk_loss.compute(replica, objective.chunks[0]).value

    own = compute(Replica(module, objective.layout, objective.dtype, objective.device))
    with objective.replicas.borrow() as replica:
        found = compute(replica)
    if not close(own, found, objective.dtype):
        raise ValueError(
            f"this model's loss on the first examples is a sum of {own:.6g}, but {found:.6g} for the objective's model "
            "with its parameters: the two differ in something that is not a tensor. Is one of another architecture or "
            "in another mode?"
        )


def _check_training(replica: Replica) -> None:
    training = [name for name, part in replica.module.named_modules() if isinstance(part, BATCH_NORM) and part.training]
    if training:
        raise ValueError(
            f"BatchNorm is in training mode ({', '.join(training[:3])}): the loss would depend on how data are "
            "batched. Call model.eval(), or write mode='eval', or ask for batchnorm='batch'."
        )


def _takes_gradients(loss: ChunkLoss, replica: Replica, batch: Batch) -> bool:
    """Whether the model or the loss takes gradients itself: it then fails without graphs, but not with them."""
    failures = (RuntimeError, ValueError, TypeError, IndexError)
    try:
        with torch.inference_mode():
            loss.compute(replica, batch)
        return False
    except failures:
        try:
            with torch.enable_grad():
                loss.compute(replica, batch)
        except failures:
            return False  # the checks that follow will say what is wrong
        return True


def _check_outputs(loss: ChunkLoss, replica: Replica, batch: Batch) -> nests.Nest:
    """Refuse inputs that the model does not take, and outputs that the loss does not take; return the outputs."""
    inputs, _ = split_pair(batch)
    try:
        returned = loss.predict(replica, batch)
    except (RuntimeError, TypeError) as error:
        shape = nests.describe(inputs)
        raise ValueError(f"the model does not take inputs of shape {shape}: {error}") from error
    if not isinstance(returned, Tensor) and loss.loss.known:
        raise ValueError(
            f"the model returns {outputs.describe_returned(returned)}, but this loss takes a tensor: say which with "
            f"{outputs.advise(returned)}, or give a loss that takes all of it"
        )
    if isinstance(returned, Tensor) and not returned.ndim:
        raise ValueError("the model must return outputs with the examples on their first axis, got one number")
    return nests.map_tensors(Tensor.detach, returned)


def _check_deterministic(loss: ChunkLoss, replica: Replica, batch: Batch) -> None:
    """Evaluate a few examples twice; refuse with the usual suspects if the returneds differ."""
    losses = []
    with torch.random.fork_rng(devices=[]), loss.disable_graphs():
        for seed in (0, 1):
            torch.manual_seed(seed)
            losses.append(_try_loss(loss, replica, batch))
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


def _try_loss(loss: ChunkLoss, replica: Replica, batch: Batch) -> float:
    if loss.batch_loss is not None:
        return loss.compute(replica, batch).value
    predicted = loss.predict(replica, batch)
    try:
        return loss.score(predicted, batch).value
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
        given, targets = nests.describe(predicted), nests.describe(split_pair(batch)[1])
        if not isinstance(predicted, Tensor):
            given = outputs.describe_returned(predicted)
        raise ValueError(f"the loss does not take outputs {given} with targets {targets}: {error}") from error


def _find_chunk_sizes(
    loss: ChunkLoss, replica: Replica, batch: Batch, most: int | None, memory: int | None
) -> tuple[ChunkLoss, ChunkSizes]:
    """Powers of two of examples, at most `most`: those whose saved activations stay near the cache, and some more.

    With a stated `memory` a product of these more examples fits into it.

    Depends on tensor sizes only, never on a clock, so that results are the same on every machine. A device has no such
    cache to stay in: there a product of the Hessian, which holds several times as much, has to fit into free memory.
    """
    most = most or 1024
    divisible = nests.can_be_cut(batch)
    few = nests.take(batch, slice(0, 4)) if divisible else batch
    try:
        with torch.enable_grad(), count_saved([replica.flat, *nests.tensors(few)]) as saved:
            sums = loss.compute(replica, few)
    except RuntimeError:  # torch.func inside the loss allows no counting
        loss = replace(loss, inner_gradients=True, countable=False)
        with torch.enable_grad():
            sums = loss.compute(replica, few)
    if not sums.loss.requires_grad:
        fault = (
            "the loss does not depend on the parameters in a way that torch can differentiate: is there a .detach(), "
            ".item(), float() or torch.no_grad() in it, or a step such as argmax?"
        )
        loss = replace(loss, fault=fault)
    if not divisible or not loss.countable:
        return loss, ChunkSizes(most, most)
    each = max(saved.all() / max(examples(few), 1), 1)
    device = replica.flat.device
    if device != CPU:
        fitting = min(_find_power(allowance(device) / WORKING / each), most)
        return loss, ChunkSizes(fitting, fitting)
    more = LARGER * CACHE if memory is None else min(LARGER * CACHE, memory / WORKING)
    near, larger = (min(_find_power(max(room / each, 8)), most) for room in (CACHE, more))
    return loss, ChunkSizes(near, larger)


def _find_power(count: float) -> int:
    """The largest power of two up to a number, or 1."""
    return 1 << int(math.log2(max(count, 1)))


def _choose_some(batch: Batch, count: int) -> Batch:
    """A few examples, evenly spread over the batch; all of a batch that cannot be cut."""
    total = examples(batch)
    if not nests.can_be_cut(batch) or total <= count:
        return batch
    return nests.take(batch, torch.linspace(0, total - 1, count).round().long())
