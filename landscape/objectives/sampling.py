"""Draw some of the examples, and estimate the mean over all from the mean over the drawn ones.

The example is the unit: what a loss adds up within one (tokens, pixels, outputs) is one number with one count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from landscape.results import Array

LEAST = 2  # examples that every stratum must get: one says nothing about the spread


@dataclass(frozen=True)
class Draw:
    """A stratified draw without replacement in which every example had the same chance."""

    index: Tensor  # (n,) numbers of the chosen examples, increasing
    strata: NDArray[np.int64]  # (n,) stratum of each, 0..H-1
    sizes: NDArray[np.int64]  # (H,) how many examples each stratum has in all

    @property
    def population(self) -> int:
        """Number of examples that were drawn from."""
        return int(self.sizes.sum())


def assume_unstratified(count: int, population: int) -> Draw:
    """Treat `count` given examples as a simple random sample of `population` examples."""
    return Draw(torch.arange(count), np.zeros(count, dtype=np.int64), np.array([population], dtype=np.int64))


def draw(labels: Tensor | None, total: int, count: int, generator: np.random.Generator) -> Draw:
    """Draw examples at random, each class in proportion to its size.

    labels: of all examples; None: classes are not known.
    total: number of examples.
    count: how many to draw.
    generator: of everything random.

    A proportion is rarely a whole number. It is rounded up or down at random such that each example is chosen with
    probability count / total: the plain mean over the chosen is then unbiased. Classes too small for two examples
    of their own form one stratum together.
    """
    names = np.zeros(total, dtype=np.int64) if labels is None else _assign_strata(labels.cpu().numpy(), count)
    sizes = np.bincount(names)
    quota = _round_shares(sizes * count / total, generator.random())
    order = generator.permutation(total)
    chosen = [order[names[order] == stratum][:wanted] for stratum, wanted in enumerate(quota)]
    index = np.sort(np.concatenate(chosen))
    return Draw(torch.from_numpy(index), names[index], sizes)


def _assign_strata(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Stratum of every example: its class, or the common one of classes that would get fewer than two."""
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    shares = sizes * count / len(labels)
    by_size = np.argsort(shares, kind="stable")
    together = 0  # the smallest classes that go together
    while together < len(shares) and (
        shares[by_size[together]] < LEAST or 0 < shares[by_size[:together]].sum() < LEAST
    ):
        together += 1
    stratum = np.zeros(len(shares), dtype=np.int64)
    stratum[by_size[together:]] = np.arange(len(shares) - together) + (together > 0)
    return stratum[codes]


def _round_shares(shares: Array, shift: float) -> NDArray[np.int64]:
    """Whole numbers next to the shares with the same sum; over a uniform shift in [0, 1) their means are the shares."""
    ends = np.cumsum(shares)
    ends[-1] = round(ends[-1])  # rounding of the sum must not lose the last example
    return np.diff(np.floor(ends + shift), prepend=0.0).astype(np.int64)


def ratio_error(sums: Array, counts: Array, drawn: Draw) -> float | None:
    """Standard error of sum(sums) / sum(counts); None for a single example, NaN if a sum is not finite.

    sums: of every drawn example.
    counts: what it adds to the divisor.
    drawn: how the examples were drawn.

    The ratio is linearised: its error is that of the mean of z_i = (sums_i - ratio counts_i) / mean(counts). That
    mean varies within strata, by (1 - n_h / N_h) s_h^2 / n_h, and through the random rounding of the quotas.
    """
    n = len(sums)
    if n < 2:
        return None
    if not np.isfinite(sums).all():
        return math.nan
    # at the scale of the largest, so that squares of huge losses do not overflow
    scale = float(np.abs(sums).max()) or 1.0
    sums = sums / scale
    z = (sums - sums.sum() / counts.sum() * counts) / counts.mean()
    strata = len(drawn.sizes)
    numbers = np.bincount(drawn.strata, minlength=strata)
    means = np.bincount(drawn.strata, z, minlength=strata) / np.maximum(numbers, 1)
    squares = np.bincount(drawn.strata, (z - means[drawn.strata]) ** 2, minlength=strata)
    within = numbers * (1 - numbers / drawn.sizes) * squares / np.maximum(numbers - 1, 1)
    variance = float(within.sum()) + _find_rounding_variance(drawn.sizes * n / drawn.population, means)
    return scale * math.sqrt(variance) / n


def _find_rounding_variance(shares: Array, means: Array) -> float:
    """Variance of sum_h quota_h means_h over the uniform shift of `_round_shares`, which is a step function of it."""
    ends = np.cumsum(shares)
    steps = 1 - (ends - np.floor(ends + 1e-9))  # shifts at which a quota changes
    edges = np.unique(np.clip(np.concatenate([[0.0, 1.0], steps]), 0.0, 1.0))
    lengths, middles = np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    totals = np.array([_round_shares(shares, shift) @ means for shift in middles])
    mean = float(lengths @ totals)
    return float(lengths @ (totals - mean) ** 2)
