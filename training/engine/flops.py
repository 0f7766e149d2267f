"""How many floating-point operations a local step takes, counted while one is computed.

Counted are matrix products, convolutions and attention, forward and backward, a multiplication and an addition as two;
what acts on single numbers (activations, norm layers, the arithmetic of rules) is not. A step of the method itself is
taken, so that extra gradients, the outputs of reference models and gradients of a part of the network count for what
they are.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from landscape.kernels.matmul import has_operation
from landscape.rng import torch_generator
from training.clients.local_training import StepGradient, local_step
from training.clients.trainer import LocalTrainer
from training.config import Recipe
from training.engine.federation import Federation
from training.methods.catalog import ALGORITHMS
from training.rules.context import ClientContext

EXAMPLES = 2  # in a batch that is counted; BatchNorm needs more than one


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of local training."""

    forward: int  # of one example through the network
    backward: int  # of one example, for the gradient in all parameters
    per_step: int  # of one local step of the method, with its whole mini-batch
    references: int  # of these, for the outputs of reference models: delta in FedSoL's Table 8
    ratio: float  # per_step against a step of FedAvg on the same network, references included


def count_flops(recipe: Recipe) -> Flops:
    """Count the floating-point operations of a recipe's network and of a local step of its method.

    recipe: its data set is loaded; only the shape of the examples matters.
    """
    return count_trainer_flops(Federation(recipe).trainer)


def count_trainer_flops(trainer: LocalTrainer) -> Flops:
    """Count the floating-point operations of a run; see `count_flops`.

    trainer: of the run; the next local step overwrites all that is changed in it, the weights of its replica.

    The step is one after the first of a round, in which FedSoL spares itself a gradient; where the cohort trains twice
    (NaiveFedGloSS) it counts twice. What a method does before its local steps (FedALA) is not in it.
    """
    method, examples = trainer.method, EXAMPLES * trainer.method.perturbation.batches
    plain = copy.copy(trainer)
    plain.method = ALGORITHMS["fedavg"]
    forward = _count_forward(trainer)
    fedavg, _ = _count_step(plain, EXAMPLES)
    step, outputs = _count_step(trainer, examples)
    times = 2 if method.server.probes else 1
    # everything counted is proportional to the number of examples
    per_example, batch = fedavg // EXAMPLES, trainer.recipe.local.batch_size
    return Flops(
        forward=forward,
        backward=per_example - forward,
        per_step=times * step * batch // EXAMPLES,
        references=times * outputs * forward * examples * batch // EXAMPLES,
        ratio=times * step / fedavg,
    )


def _count_forward(trainer: LocalTrainer) -> int:
    """Count the forward pass of one example."""
    inputs, _ = trainer.load_batch(_choose(trainer, EXAMPLES), 0, 0, 0)
    statistics = trainer.read_statistics()
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # dropout draws from the global generator
        found = _count(lambda: trainer.compute_output(trainer.replica.module, inputs, False))
    trainer.load_statistics(statistics)
    return found // EXAMPLES


def _count_step(trainer: LocalTrainer, examples: int) -> tuple[int, int]:
    """Count a local step on a mini-batch of a few examples, away from the point that was sent.

    Returns the operations, and how often the output of a reference model was computed.
    """
    method, recipe = trainer.method, trainer.recipe
    start = trainer.layout.flatten(trainer.model).to(trainer.device, trainer.dtype)
    generator = torch_generator(recipe.seed, "flops")
    context = ClientContext(
        layout=trainer.layout,
        start=start,
        message=method.make_message(start, method.init_server(start)),
        state=method.init_client(trainer.layout, start),
        lr=recipe.local.lr,
        momentum=recipe.local.momentum,
        steps=2,
        round=recipe.rounds.count,  # a radius that grows has grown
        seed=recipe.seed,
        step=1,
    )
    w = start + 1e-3 * torch.randn(start.shape, generator=generator, dtype=torch.float64).to(start)
    batch = trainer.load_batch(_choose(trainer, examples), 0, 0, 0)
    gradient_at = StepGradient(trainer, context, *batch, at_rest=True, strict=False)
    with torch.random.fork_rng(devices=[]):
        found = _count(lambda: local_step(method, gradient_at, w, None, context, recipe))
    return found, gradient_at.references


def _choose(trainer: LocalTrainer, examples: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The first examples of the training data, some of them twice if there are fewer."""
    return np.arange(examples, dtype=np.int64) % len(trainer.dataset.train_inputs)


def _count(compute: Callable[[], object]) -> int:
    mapping: dict[object, Callable[..., int]] = {torch.ops.aten.convolution_backward: _count_convolution_backward}
    if has_operation():
        mapping[torch.ops.mkldnn._linear_pointwise] = _count_product
    # torch counts attention where it is matrix products, but not in the fused kernel of CPUs
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter, sdpa_kernel(SDPBackend.MATH):
        compute()
    return int(counter.get_total_flops())


def _count_product(x: Sequence[int], w: Sequence[int], *rest: object, **_: object) -> int:
    """Count a product of matrices by oneDNN from their shapes, (m, k) and (n, k)."""
    return 2 * math.prod(x) * w[0]


def _count_convolution_backward(
    gradient: Sequence[int], inputs: Sequence[int], weight: Sequence[int], *rest: object, **_: object
) -> int:
    """Count the backward pass of a convolution from the shapes; torch's own count is wrong for groups of channels.

    The gradients of inputs and weights cost what the forward pass costs, each where it is wanted.
    """
    transposed, wanted = rest[4], rest[7]
    assert isinstance(wanted, Sequence)
    forward = 2 * math.prod(inputs if transposed else gradient) * math.prod(weight[1:])
    return forward * (bool(wanted[0]) + bool(wanted[1]))
