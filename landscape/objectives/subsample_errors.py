"""How uncertain a number from a sub-sample is, estimated from how much it differs between parts of it.

An eigenvalue lambda = v' H v of the mean Hessian of n out of N examples moves, to first order, as the mean of the
examples' own v' H_i v does: the eigenvector stays, its turning is a second-order effect. So the standard error of that
mean at fixed v is the standard error of lambda. It says nothing of a bias: the largest eigenvalue of a sub-sample tends
to lie above that of all data, by an amount that falls as 1/n, and so faster than the standard error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from landscape.losses.batches import join
from landscape.objectives.objective import Objective
from landscape.results import Array, Sharpness
from landscape.rng import numpy_generator
from landscape.runtime.device import to_float64

PARTS = 20  # of a sub-sample: 19 degrees of freedom, so that two standard errors hold 94 % of the time


def standard_error(values: Array, counts: Sequence[int], population: int) -> Array:
    """Of the mean of values over parts of a sub-sample, drawn without replacement; NaN for a single part.

    values: (parts, ...) means over each part.
    counts: examples in each part.
    population: examples that the sub-sample was drawn from.
    """
    weights, count = np.asarray(counts) / sum(counts), len(counts)
    if count < 2:
        return np.full(values.shape[1:], math.nan)
    mean = np.tensordot(weights, values, axes=1)
    squares = np.tensordot(weights**2, (values - mean) ** 2, axes=1)
    return np.asarray(np.sqrt(count / (count - 1) * squares * (1 - sum(counts) / population)))


def deal(objective: Objective, parts: int, seed: int = 0) -> list[Objective]:
    """Disjoint parts of the data, every class dealt out evenly: they differ as much as draws by class do.

    objective: the loss on the data.
    parts: how many.
    seed: of the order in which examples are dealt out.
    """
    inputs, targets = join(objective.chunks)
    order = torch.from_numpy(numpy_generator(seed, "deal").permutation(len(targets))).to(targets.device)
    if targets.ndim == 1 and not targets.is_floating_point():
        order = order[torch.argsort(targets[order], stable=True)]
    return [objective.on(inputs[order[part::parts]], targets[order[part::parts]]) for part in range(parts)]


def shuffle(objective: Objective, seed: int, *purpose: str | int) -> Objective:
    """The same examples in a random order: those of one class often lie together.

    objective: the loss on the data.
    seed, purpose: what the order depends on.
    """
    inputs, targets = join(objective.chunks)
    order = numpy_generator(seed, *purpose).permutation(len(inputs))
    return objective.on(inputs[order], targets[order], population=objective.population)


def quotient_errors(objective: Objective, theta: Tensor, vectors: Tensor, parts: int = PARTS) -> Array:
    """Standard errors (k,) of the Rayleigh quotients v' H v; 0 where all data were seen.

    Costs one Hessian product for each vector.

    objective: the loss on the sub-sample.
    theta: where the Hessian is taken.
    vectors: (k, d), of unit length.
    parts: into how many the data are dealt.
    """
    if objective.population is None:
        return np.zeros(len(vectors))
    parts = min(parts, objective.count)
    rows, counts = [], []
    for part in deal(objective, parts):
        products = part.hessian(theta).matmat(vectors)
        rows.append((to_float64(products) * to_float64(vectors)).sum(dim=1).cpu().numpy())
        counts.append(part.count)
    return standard_error(np.stack(rows), counts, objective.population)


def combined_quotient_errors(
    objectives: Mapping[int, Objective], shares: Mapping[int, float], theta: Tensor, vectors: Tensor
) -> Array:
    """Standard errors (k,) of v' H v, H = sum of p_k H_k, from those of the sub-samples among the objectives.

    objectives: F_k by number, each on the data of one client.
    shares: p_k.
    theta: where the Hessians are taken.
    vectors: (k, d), of unit length.
    """
    drawn = [number for number, objective in objectives.items() if objective.population is not None]
    parts = max(math.ceil(PARTS / max(len(drawn), 1)), 2)  # many clients: few parts of each will do
    squares = [(shares[k] * quotient_errors(objectives[k], theta, vectors, parts)) ** 2 for k in drawn]
    return np.asarray(np.sqrt(sum(squares, np.zeros(len(vectors)))))


def gradient_error(objective: Objective, variance: float, size: int) -> float:
    """Standard error of the gradient, from the variance of gradients of batches; 0 where all data were seen.

    objective: the loss on the sub-sample.
    variance: of the gradients of batches, drawn from the sub-sample without replacement.
    size: of a batch.
    """
    n, N = objective.count, objective.population
    if N is None:
        return 0.0
    if n <= size:
        return math.nan
    return math.sqrt(variance * size * (n - 1) / ((n - size) * n) * (1 - n / N))


def rise_error(objective: Objective, theta: Tensor, e: Tensor, parts: Sequence[Objective] | None = None) -> float:
    """Standard error of F(theta + e) - F(theta), the perturbation held; 0 where all data were seen.

    objective: F on the sub-sample.
    theta: the model.
    e: the perturbation.
    parts: F on disjoint parts of the sub-sample; None: PARTS of them, dealt out.
    """
    if objective.population is None:
        return 0.0
    parts = deal(objective, min(PARTS, objective.count)) if parts is None else parts
    rises = np.asarray([part.loss(theta + e) - part.loss(theta) for part in parts])
    return float(standard_error(rises, [part.count for part in parts], objective.population))


def sharpness_error(objective: Objective, theta: Tensor, found: Sharpness) -> float:
    """Standard error of a sharpness as an estimate of that on all examples, the perturbation held; 0: all were seen.

    NaN where there is no single perturbation: averages, and means over batches.

    objective: the loss on the sub-sample.
    theta: the model.
    found: its sharpness.
    """
    if objective.population is None:
        return 0.0
    if found.perturbation is None or found.m is not None or found.kind == "keskar":
        return math.nan
    return rise_error(objective, theta, found.perturbation)
