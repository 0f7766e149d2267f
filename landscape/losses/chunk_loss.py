"""The loss of one chunk: the model's outputs, the sum of their losses, and how many predictions are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from landscape.losses import nests, outputs
from landscape.losses.batches import Batch, check_pair, choose_checked, examples, split_pair
from landscape.losses.nests import Nest
from landscape.losses.predictions import ErrorCounter, find_error_counter
from landscape.losses.summed_loss import SummedLoss, Sums, check_labels, read_batch_loss
from landscape.runtime.replica import Replica

T = TypeVar("T")
BatchLoss = Callable[[nn.Module, Batch], tuple[Tensor | float, ...]]
NO_COUNTER = ErrorCounter("none", "batch_loss gives no third value")


@dataclass(frozen=True)
class ChunkLoss:
    """The loss of a chunk as sums over its examples, from a loss of the model's outputs or from a batch_loss.

    The second group of fields is what `probes.probe` finds out before any other work.
    """

    loss: SummedLoss  # not used where there is a batch_loss
    batch_loss: BatchLoss | None
    choose_outputs: Callable[[Nest], Nest]  # from what the model returns to what the loss takes

    sample: Nest = None  # the model's outputs for a few examples
    error_counter: ErrorCounter = NO_COUNTER
    inner_gradients: bool = False  # whether the model or the loss differentiates itself
    countable: bool = True  # whether the bytes that autograd saves can be counted
    fault: str = ""  # why there are no derivatives

    def check_batches(self, batches: Sequence[Batch]) -> None:
        """Refuse batches that are not pairs, unless a batch_loss takes them."""
        if self.batch_loss is None:
            for batch in choose_checked(batches):
                check_pair(batch)

    def check_differentiable(self) -> None:
        """Refuse a loss that torch cannot differentiate by the parameters."""
        if self.fault:
            raise ValueError(self.fault)

    def adapt(self, batches: Sequence[Batch]) -> ChunkLoss:
        """The same loss for these batches: their labels are checked, and decide when a prediction is wrong."""
        if self.batch_loss is not None:
            return self
        targets = [split_pair(batch)[1] for batch in choose_checked(batches)]
        if isinstance(self.sample, Tensor):
            for some in targets:
                check_labels(self.loss, self.sample.shape, some)
        return replace(self, error_counter=find_error_counter(self.loss, self.sample, targets))

    def disable_graphs(self) -> AbstractContextManager[object]:
        """Turn autograd off inside the block, unless the loss itself takes gradients."""
        return torch.enable_grad() if self.inner_gradients else torch.inference_mode()

    def compute(self, replica: Replica, chunk: Batch) -> Sums:
        """The sum of a chunk's losses and its divisor; differentiable."""
        if self.batch_loss is None:
            return self.score(self.predict(replica, chunk), chunk)
        with outputs.explain_lookup_errors(chunk):
            return read_batch_loss(self.batch_loss(replica.module, _views(chunk)), examples(chunk))

    def predict(self, replica: Replica, chunk: Batch) -> Nest:
        """The model's outputs for a chunk, as the loss takes them; differentiable."""
        inputs, _ = split_pair(chunk)
        with outputs.explain_lookup_errors(inputs):
            return self.choose_outputs(outputs.call(replica.module, _views(inputs)))

    def score(self, predicted: Nest, chunk: Batch, each: bool = False) -> Sums:
        """The sum of the losses of these outputs; each: those of every example as well."""
        _, targets = split_pair(chunk)
        return self.loss(predicted, targets, examples(chunk), each)

    def measure(self, replica: Replica, chunk: Batch, each: bool) -> Sums:
        """What a chunk adds to loss and error, without a graph; each: what every example adds as well."""
        with self.disable_graphs():
            if self.batch_loss is not None:
                sums = self.compute(replica, chunk)
            else:
                sums = self._judge(self.predict(replica, chunk), chunk, each)
        return replace(sums, loss=sums.loss.detach())

    def observe(
        self, replica: Replica, chunk: Batch, each: bool, observer: Callable[[Nest, Nest], T]
    ) -> tuple[Sums, T]:
        """The same as `measure`, and what an observer returns for the outputs and targets of the chunk."""
        with self.disable_graphs():
            predicted = self.predict(replica, chunk)
            sums = self._judge(predicted, chunk, each)
            return replace(sums, loss=sums.loss.detach()), observer(predicted, split_pair(chunk)[1])

    def _judge(self, predicted: Nest, chunk: Batch, each: bool) -> Sums:
        """The sums of losses and errors of these outputs; each: those of every example as well."""
        _, targets = split_pair(chunk)
        errors, labelled, pairs = self.error_counter.count(predicted, targets, examples(chunk), each)
        sums = self.score(predicted, chunk, each)
        return replace(sums, errors=errors, labelled=labelled, each_error=pairs)

    def differentiate(self, replica: Replica, chunk: Batch, leaves: Sequence[Tensor]) -> tuple[Sums, Tensor]:
        """A chunk's sums, and the gradient of its summed loss by the leaves as one flat vector."""
        with torch.enable_grad():
            sums = self.compute(replica, chunk)
        parts = torch.autograd.grad(sums.loss, leaves, allow_unused=True, materialize_grads=True)
        flat = torch.cat([(part.to_dense() if part.is_sparse else part).reshape(-1) for part in parts])
        return replace(sums, loss=sums.loss.detach()), flat


def _views(batch: Nest) -> Nest:
    """Copy the data: a model or a loss may ask for gradients with respect to its inputs."""
    return nests.map_tensors(Tensor.detach, batch)
