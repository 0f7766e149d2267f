"""How clients differ: means and variances over a drawn set E of all N of them, and friendly adversaries.

Friendly adversaries are perturbations that raise one loss and lower another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from torch import Tensor

from analysis.shared.search import Search
from analysis.study import Floats, scalar, variable
from landscape import Objective
from landscape.geometry.directions import distance
from landscape.results import standard_error
from landscape.runtime.device import to_float64

FRIENDLY = "share of ordered pairs where a perturbation that raises the own loss lowers the other"
ERROR = "its standard error; 0: E is all clients"
NOISE = "what sub-sampling adds to it on average"


def compute_mean_and_variance(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Weighted mean and variance over the last axis; weights sum to one."""
    mean = values @ weights
    return mean, np.square(values - mean[..., None]) @ weights


@dataclass(frozen=True, eq=False)
class ClientSample:
    """The clients of E among all N.

    shares: (|E|,) their shares of the examples of E.
    own: (|E|,) their shares p_k of all examples.
    everyone: (N,) the shares p_k of all clients.
    """

    shares: Floats
    own: Floats
    everyone: Floats

    def standard_error(self, values: Floats, weights: Floats) -> Floats:
        """Of a weighted mean over E as an estimate of that over all N: 0 where E is all, NaN for a single client.

        E is drawn without replacement, and weights that sum to one make the mean a ratio.

        values: (round, client).
        weights: (client,), sum to one.
        """
        n, N = len(self.shares), len(self.everyone)
        if n == N:
            return np.zeros(len(values))
        mean, _ = compute_mean_and_variance(values, weights)
        squares = np.square((values - mean[:, None]) * weights).sum(axis=1)
        return np.asarray(np.sqrt((1 - n / N) * squares * (n / (n - 1) if n > 1 else math.nan)))

    def noise_of_mean(self, squares: Floats) -> Floats:
        """sum of p_j^2 s_j^2 over all N clients; those outside E are taken to be as noisy as those in it."""
        known = squares @ self.own**2
        return np.asarray(known * float(self.everyone @ self.everyone) / float(self.own @ self.own))


def describe_dispersions(values: Mapping[str, Floats], sample: ClientSample) -> dict[str, xr.Variable]:
    """Means and variances over the clients of E, uniform and by size, with and without the noise of sub-samples.

    values: (round, client) of each variable of the study `incompatibility`; those that are missing are left out.
    """
    found: dict[str, tuple[Floats, str]] = {}
    uniform = np.full_like(sample.shares, 1 / len(sample.shares))
    for end, weights, how in (("", uniform, ""), ("_weighted", sample.shares, ", by size")):
        for name, symbol in (("rise", "R_k"), ("maximised", "maximised R_k")):
            if name not in values:
                continue
            mean, raw = compute_mean_and_variance(values[name], weights)
            # an error of one R_k also moves the mean: its share of the variance is w (1 - w), not w
            noise = np.square(values[f"{name}_error"]) @ (weights * (1 - weights))
            found[f"{name}_mean{end}"] = (mean, f"mean of {symbol}{how}")
            found[f"{name}_mean{end}_standard_error"] = (sample.standard_error(values[name], weights), ERROR)
            found[f"{name}_dispersion{end}"] = (raw, f"variance of {symbol} over clients{how}")
            found[f"{name}_dispersion_noise{end}"] = (noise, NOISE)
            found[f"{name}_dispersion_corrected{end}"] = (raw - noise, "variance without that noise; may be negative")
        apart = values["client_heterogeneity"]
        mean, _ = compute_mean_and_variance(apart, weights)
        found[f"heterogeneity{end}"] = (mean, f"mean of ||g_k - g||^2{how}, g over all clients (eq. 6)")
        found[f"heterogeneity{end}_standard_error"] = (sample.standard_error(apart, weights), ERROR)
        if "gradient_error" in values:
            squares = np.square(values["gradient_error"])
            noise = squares @ (weights * (1 - 2 * sample.own)) + sample.noise_of_mean(squares)
            found[f"heterogeneity_noise{end}"] = (noise, NOISE)
            variance, _ = compute_mean_and_variance(values["client_batch_variance"], weights)
            found[f"batch_variance{end}"] = (variance, f"mean of ||g_batch - g_k||^2{how}")
    return {name: variable("round", array, text) for name, (array, text) in found.items()}


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
    slopes = np.asarray([[float(to_float64(e) @ to_float64(g)) for g in gradients] for e in perturbations])
    others = ~np.eye(len(batches), dtype=bool)
    other_rise = rises[others].mean() if others.any() else math.nan
    return {
        "batches": scalar(len(batches), "mini-batches compared with each other"),
        "client_batch_variance": scalar(spreads.mean(), "||g_batch - g_k||^2, mean over them"),
        "client_batch_variance_error": scalar(standard_error(spreads), "its standard error"),
        "client_friendly_batches": scalar(compute_friendly_rate(rises), f"{FRIENDLY} batch's"),
        "friendly_batches_linear": scalar(
            compute_friendly_rate(slopes), "the same to first order: by the signs of <e_b, g_c>"
        ),
        "other_batch_rise": scalar(other_rise, "mean rise of one batch's loss under another's perturbation"),
    }


def describe_friends(answer: xr.Dataset) -> dict[str, xr.Variable]:
    """How often clients, and mini-batches of a client, are friendly adversaries of each other.

    answer: of the study `incompatibility`.
    """
    rates = [compute_friendly_rate(rises) for rises in answer["other_rise"].values]
    found = {"friendly_clients": variable("round", rates, f"{FRIENDLY} client's")}
    if "client_friendly_batches" in answer:
        mean = answer["client_friendly_batches"].mean("client")
        found["friendly_batches"] = variable("round", mean, f"mean over clients: {FRIENDLY} batch's")
    return found


def compute_friendly_rate(rises: Floats) -> float:
    """The share of ordered pairs (b, c) where b's perturbation, row b, raises the loss of b and lowers that of c."""
    count = len(rises)
    if count < 2:
        return math.nan
    raising = np.diag(rises) > 0
    return float(((rises < 0) & raising[:, None] & ~np.eye(count, dtype=bool)).sum() / (count * (count - 1)))
