"""Logits and penultimate features of a model, and which examples a study looks at."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.subjects import Subject
from landscape.layout import Layout
from landscape.losses.batches import choose_stratified
from landscape.rng import numpy_generator
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


def compute_outputs(subject: Subject, theta: Tensor, inputs: Tensor) -> Outputs:
    """Evaluate a model in eval mode, with the subject's policy for norm layers.

    The classifier is the layer that owns the last parameters, as in local training.

    theta: weights, followed by running statistics where there are norm layers.
    inputs: examples as the network sees them.
    """
    limits = subject.limits
    layout = Layout.of(subject.model, statistics=subject.policy == "interpolated")
    path = layout.parameters[-1].layer
    point = layout.check(theta).to(limits.dtype)
    replicas = Replicas(prepare(subject.model, subject.policy, "eval"), layout, limits.dtype, torch.device("cpu"))

    def evaluate(part: Tensor) -> Outputs:
        with replicas.borrow() as replica, torch.inference_mode():
            replica.load(point)
            return _run_forward(replica, path, part)

    parts = torch.split(inputs.to(limits.dtype) if inputs.is_floating_point() else inputs, limits.chunk_size)
    found = list(ordered_map(evaluate, parts, limits.workers or torch.get_num_threads()))
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
    return Outputs(logits, caught[-1].flatten(1))


def draw_examples(labels: Tensor, count: int | None, seed: int, *purpose: str | int) -> Tensor:
    """Indices of `count` examples, each class in proportion; all of them, in order, if there are no more.

    labels: the class of every example.
    count: how many are drawn; None: all.
    seed, purpose: what the draw depends on.
    """
    if count is None or count >= len(labels):
        return torch.arange(len(labels))
    return choose_stratified(labels, len(labels), count, numpy_generator(seed, *purpose))
