"""Short looks before long work: is the loss a fixed function, and how large may a chunk be?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from landscape.data import Batch, examples, is_pair
from landscape.losses import check_labels
from landscape.memory import counting_saved
from landscape.replica import NORM, Replica

if TYPE_CHECKING:
    from landscape.objective import Objective

CACHE = 32 * 2**20  # bytes of saved activations per chunk: 32-64 images of LeNet64, where its throughput peaks
DROPOUTS = (nn.modules.dropout._DropoutNd, nn.RReLU)


def check_deterministic(objective: Objective, replica: Replica, batches: Sequence[Batch]) -> None:
    """Evaluate the first examples twice; refuse with the usual suspects if the answers differ."""
    training = [name for name, part in replica.module.named_modules() if isinstance(part, NORM) and part.training]
    if training:
        raise ValueError(
            f"BatchNorm is in training mode ({', '.join(training[:3])}): the loss would depend on how data are "
            "batched. Call model.eval(), or write mode='eval', or ask for batchnorm='batch'."
        )
    batch = _head(batches[0], 32)
    losses = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for seed in (0, 1):
            torch.manual_seed(seed)
            losses.append(_try(objective, replica, batch, batches))
    first, second = losses
    if not math.isfinite(first):
        raise ValueError(f"the loss of the first {examples(batch)} examples is {first}: are the inputs finite?")
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


def fitting_chunk(objective: Objective, replica: Replica, batch: Batch, most: int | None) -> int:
    """A power of two of examples whose saved activations stay near the cache, at most `most`.

    Depends on tensor sizes only, never on a clock, so that results are the same on every machine.
    """
    most = most or 1024
    if not is_pair(batch):
        return most
    piece = _head(batch, 4)
    with counting_saved([replica.flat, *piece]) as saved:
        objective._sums(replica, piece)
    each = max(saved.all() / examples(piece), 1)
    return min(1 << int(math.log2(max(CACHE / each, 8))), most)


def _try(objective: Objective, replica: Replica, batch: Batch, batches: Sequence[Batch]) -> float:
    if objective._batch_loss is not None:
        result = objective._batch_loss(replica.module, batch)
        if not isinstance(result, tuple) or len(result) not in (2, 3):
            raise ValueError(
                "batch_loss(model, batch) must return (sum of losses, count) or (sum, count, errors), "
                f"got {type(result).__name__}"
            )
        return float(result[0])
    if not is_pair(batch):
        raise ValueError(
            "each batch must be a pair of tensors (inputs, targets); for anything else give "
            f"batch_loss=(model, batch) -> (sum, count). Got {type(batch).__name__}"
        )
    inputs, targets = batch
    try:
        outputs = replica.module(inputs)
    except RuntimeError as error:
        raise ValueError(f"the model does not take inputs of shape {tuple(inputs.shape)}: {error}") from error
    objective._outputs = outputs.shape
    for _, labels in batches:
        check_labels(objective._loss, outputs.shape, labels)
    try:
        return float(objective._loss(outputs, targets).loss)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"the loss does not take outputs {tuple(outputs.shape)} with targets {tuple(targets.shape)}: {error}"
        ) from error


def _head(batch: Batch, count: int) -> Batch:
    return (batch[0][:count], batch[1][:count]) if is_pair(batch) else batch
