"""What one chunk contributes to an objective: the model's outputs, their losses, and which predictions are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from landscape.objectives import nests, outputs
from landscape.objectives.batches import Batch, check_pair, examples, split_pair
from landscape.objectives.losses import SummedLoss, Sums, check_labels, general_sums
from landscape.objectives.nests import Nest
from landscape.objectives.predictions import Rule, find_rule
from landscape.runtime.replica import Replica

BatchLoss = Callable[[nn.Module, Batch], tuple[Any, ...]]


class Terms:
    """The loss of a chunk as sums, in one of two forms: model, choice of outputs and loss; or a batch_loss.

    What probes find out is kept here too. Copies differ only in the rule that their targets lead to.
    """

    def __init__(self, loss: SummedLoss, batch_loss: BatchLoss | None, choice: outputs.Choice):
        self.loss, self.batch_loss = loss, batch_loss
        self._choose = outputs.chooser(choice)
        self.sample: Any = None  # the model's outputs for a few examples
        self.rule = Rule("none", "batch_loss gives no third value")
        self.inner_gradients = False  # whether the model or the loss differentiates itself
        self.countable = True  # whether autograd can count what it saves
        self.fault = ""  # why there are no derivatives

    def check(self, batches: Sequence[Batch]) -> None:
        """Refuse batches that are not pairs, unless a batch_loss takes them."""
        if self.batch_loss is None:
            for batch in batches:
                check_pair(batch)

    def learn(self, batches: Sequence[Batch]) -> None:
        """Refuse labels that the model has no output for; know when a prediction is wrong."""
        if self.batch_loss is not None:
            return
        targets = [split_pair(batch)[1] for batch in batches]
        if isinstance(self.sample, Tensor):
            for some in targets:
                check_labels(self.loss, self.sample.shape, some)
        self.rule = find_rule(self.loss, self.sample, targets)

    def evaluating(self) -> AbstractContextManager[object]:
        """No graphs, unless the loss needs them for gradients of its own."""
        return torch.enable_grad() if self.inner_gradients else torch.inference_mode()

    def sums(self, replica: Replica, chunk: Batch) -> Sums:
        """Sum of a chunk's losses and its divisor; differentiable."""
        if self.batch_loss is None:
            return self.judge(self.predict(replica, chunk), chunk)
        with outputs.explained(chunk):
            return general_sums(self.batch_loss(replica.module, _views(chunk)), examples(chunk))

    def predict(self, replica: Replica, chunk: Batch) -> Any:
        """The model's outputs that the loss is about."""
        inputs, _ = split_pair(chunk)
        with outputs.explained(inputs):
            return self._choose(outputs.call(replica.module, _views(inputs)))

    def judge(self, predicted: Any, chunk: Batch, each: bool = False) -> Sums:
        """The losses of these outputs; `each`: those of every example as well."""
        _, targets = split_pair(chunk)
        return self.loss(predicted, targets, examples(chunk), each)

    def measure(self, replica: Replica, chunk: Batch, each: bool) -> Sums:
        """What a chunk contributes to loss and error, without a graph; `each`: what every example does as well."""
        with self.evaluating():
            if self.batch_loss is not None:
                sums = self.sums(replica, chunk)
            else:
                predicted = self.predict(replica, chunk)
                _, targets = split_pair(chunk)
                errors, labelled, pairs = self.rule.count(predicted, targets, examples(chunk), each)
                sums = self.judge(predicted, chunk, each)
                sums = replace(sums, errors=errors, labelled=labelled, each_error=pairs)
        return replace(sums, loss=sums.loss.detach())

    def slope(self, replica: Replica, chunk: Batch, leaves: Sequence[Tensor]) -> tuple[Sums, Tensor]:
        """A chunk's sums and the flat gradient of its loss by the leaves."""
        with torch.enable_grad():
            sums = self.sums(replica, chunk)
        parts = torch.autograd.grad(sums.loss, leaves, allow_unused=True, materialize_grads=True)
        flat = torch.cat([(part.to_dense() if part.is_sparse else part).reshape(-1) for part in parts])
        return replace(sums, loss=sums.loss.detach()), flat


def _views(batch: Nest) -> Nest:
    """The same data in tensors of its own: a model or a loss may ask for gradients by its inputs."""
    return nests.map_tensors(Tensor.detach, batch)
