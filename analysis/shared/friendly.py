"""Friendly adversaries: perturbations that raise one loss and lower another, and what the samples leave uncertain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from analysis.shared import spread
from analysis.shared.search import Search
from analysis.studies.drift import distance
from analysis.study import Arrays
from landscape import Objective
from landscape.results import standard_error

GROUPS = 16  # parts of a sub-sample whose rises are compared for a standard error


def rise_error(objective: Objective, theta: Tensor, e: Tensor) -> float:
    """Standard error of F(theta + e) - F(theta) on a sub-sample, from the spread over its parts; 0 on all data."""
    if objective.population is None:
        return 0.0
    parts = objective.split(math.ceil(objective.count / GROUPS))
    if len(parts) < 2:
        return math.nan
    rises = np.asarray([part.loss(theta + e) - part.loss(theta) for part in parts])
    return float(spread.standard_error(rises, [part.count for part in parts], objective.population))


def compare_batches(batches: Sequence[Objective], theta: Tensor, whole_gradient: Tensor, search: Search) -> Arrays:
    """Variance of batch gradients (eq. 8), and how often one batch's perturbation is friendly to another (eq. 7)."""
    losses = np.asarray([batch.loss(theta) for batch in batches])
    gradients = [batch.gradient(theta) for batch in batches]
    spreads = np.asarray([distance(gradient, whole_gradient) ** 2 for gradient in gradients])
    perturbations = [search.perturbation(gradient) for gradient in gradients]
    rises = np.asarray([[batch.loss(theta + e) for batch in batches] for e in perturbations]) - losses
    slopes = np.asarray([[float(e.double() @ g.double()) for g in gradients] for e in perturbations])
    others = ~np.eye(len(batches), dtype=bool)
    return {
        "batches": np.asarray(len(batches)),
        "batch_variance": np.asarray(spreads.mean()),
        "batch_variance_error": np.asarray(standard_error(spreads)),
        "friendly_batches": np.asarray(friendly(rises)),
        "friendly_batches_linear": np.asarray(friendly(slopes)),
        "other_batch_rise": np.asarray(rises[others].mean() if others.any() else math.nan),
    }


def friendly(rises: NDArray[Any]) -> float:
    """The share of ordered pairs (b, c) where b's perturbation, row b, raises the loss of b and lowers that of c."""
    count = len(rises)
    if count < 2:
        return math.nan
    raising = np.diag(rises) > 0
    return float(((rises < 0) & raising[:, None] & ~np.eye(count, dtype=bool)).sum() / (count * (count - 1)))


def dispersion(values: NDArray[Any], weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weighted mean and variance over the last axis; weights sum to one."""
    mean = values @ weights
    return mean, np.square(values - mean[..., None]) @ weights
