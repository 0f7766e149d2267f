"""Logits and penultimate features of a model for some examples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from landscape.layout import Layout
from landscape.runtime.device import CPU, full_precision
from landscape.runtime.replica import Replica, Replicas, prepare
from landscape.runtime.workers import ordered_map


@dataclass(frozen=True)
class Outputs:
    """What a model computes for some examples.

    logits: (examples, classes).
    features: (examples, inputs of the classifier).
    """

    logits: Tensor
    features: Tensor

    @property
    def predicted(self) -> Tensor:
        """The class with the largest logit, for each example."""
        return self.logits.argmax(dim=1)


def compute_outputs(
    model: nn.Module,
    theta: Tensor,
    inputs: Tensor,
    *,
    batchnorm: str,
    dtype: torch.dtype,
    chunk_size: int,
    workers: int | None = None,
    device: torch.device = CPU,
) -> Outputs:
    """Evaluate a model in eval mode.

    The classifier is the layer that owns the last parameters, as in local training.

    model: whose architecture it is; it is not changed.
    theta: weights, followed by running statistics where norm layers have them and they are "interpolated".
    inputs: examples as the network sees them.
    batchnorm: the treatment of norm layers, as `Objective` takes it.
    dtype: of the computation.
    chunk_size: most examples at once.
    workers: threads; None: as many as torch uses.
    device: where it is computed. The outputs are on the CPU.
    """
    layout = Layout.of(model, statistics=batchnorm == "interpolated")
    path = layout.parameters[-1].layer
    point = layout.check(theta).to(device, dtype)
    replicas = Replicas(prepare(model, batchnorm, "eval"), layout, dtype, device)

    def evaluate(part: Tensor) -> Outputs:
        with full_precision(), replicas.borrow() as replica, torch.inference_mode():
            replica.load(point)
            return _run_forward(replica, path, part.to(device))

    parts = torch.split(inputs.to(dtype) if inputs.is_floating_point() else inputs, chunk_size)
    threads = (workers or torch.get_num_threads()) if device == CPU else 1
    found = list(ordered_map(evaluate, parts, threads))
    return Outputs(torch.cat([one.logits for one in found]), torch.cat([one.features for one in found]))


def _run_forward(replica: Replica, path: str, inputs: Tensor) -> Outputs:
    caught: list[Tensor] = []
    hook = replica.module.get_submodule(path).register_forward_pre_hook(lambda _, given: caught.append(given[0]))
    try:
        logits = replica.module(inputs)
    finally:
        hook.remove()
    if not caught:
        raise ValueError(f"the forward pass never called layer '{path}', so the features that enter it are unknown")
    return Outputs(logits.cpu(), caught[-1].flatten(1).cpu())
