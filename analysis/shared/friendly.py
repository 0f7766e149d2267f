"""Friendly adversaries: perturbations that raise one loss and lower another, and what the samples leave uncertain."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr
from torch import Tensor

from analysis.shared import spread
from analysis.shared.distances import distance
from analysis.shared.search import Search
from analysis.study import Floats, scalar
from landscape import Objective
from landscape.results import standard_error

GROUPS = 16  # parts of a sub-sample whose rises are compared for a standard error
FRIENDLY = "share of ordered pairs where a perturbation that raises the own loss lowers the other"


def rise_error(objective: Objective, theta: Tensor, e: Tensor) -> float:
    """Standard error of F(theta + e) - F(theta) on a sub-sample, from the spread over its parts; 0 on all data."""
    if objective.population is None:
        return 0.0
    parts = objective.split(math.ceil(objective.count / GROUPS))
    if len(parts) < 2:
        return math.nan
    rises = np.asarray([part.loss(theta + e) - part.loss(theta) for part in parts])
    return float(spread.standard_error(rises, [part.count for part in parts], objective.population))


def compare_batches(
    batches: Sequence[Objective], theta: Tensor, whole_gradient: Tensor, search: Search
) -> dict[str, xr.Variable]:
    """Variance of batch gradients (eq. 8), and how often one batch's perturbation is friendly to another (eq. 7).

    batches: losses on the mini-batches of one client.
    whole_gradient: the gradient of all its data.
    """
    losses = np.asarray([batch.loss(theta) for batch in batches])
    gradients = [batch.gradient(theta) for batch in batches]
    spreads = np.asarray([distance(gradient, whole_gradient) ** 2 for gradient in gradients])
    perturbations = [search.perturb(gradient) for gradient in gradients]
    rises = np.asarray([[batch.loss(theta + e) for batch in batches] for e in perturbations]) - losses
    slopes = np.asarray([[float(e.double() @ g.double()) for g in gradients] for e in perturbations])
    others = ~np.eye(len(batches), dtype=bool)
    other_rise = rises[others].mean() if others.any() else math.nan
    return {
        "batches": scalar(len(batches), "mini-batches compared with each other"),
        "client_batch_variance": scalar(spreads.mean(), "||g_batch - g_k||^2, mean over them"),
        "client_batch_variance_error": scalar(standard_error(spreads), "its standard error"),
        "client_friendly_batches": scalar(friendly_rate(rises), f"{FRIENDLY} batch's"),
        "friendly_batches_linear": scalar(friendly_rate(slopes), "the same to first order: by the signs of <e_b, g_c>"),
        "other_batch_rise": scalar(other_rise, "mean rise of one batch's loss under another's perturbation"),
    }


def friendly_rate(rises: Floats) -> float:
    """The share of ordered pairs (b, c) where b's perturbation, row b, raises the loss of b and lowers that of c."""
    count = len(rises)
    if count < 2:
        return math.nan
    raising = np.diag(rises) > 0
    return float(((rises < 0) & raising[:, None] & ~np.eye(count, dtype=bool)).sum() / (count * (count - 1)))
