"""Noise of four kinds."""

from __future__ import annotations

import numpy as np

from training.data.corruptions.images import Images, Random


def gaussian_noise(x: Images, scale: float, random: Random) -> Images:
    """x + scale n."""
    return x + scale * random.standard_normal(x.shape)


def shot_noise(x: Images, photons: float, random: Random) -> Images:
    """Poisson counts at a mean of `photons` for white."""
    return random.poisson(x * photons) / photons


def impulse_noise(x: Images, amount: float, random: Random) -> Images:
    """Salt and pepper, in each channel by itself."""
    hit, salt = random.random(x.shape) < amount, random.random(x.shape) < 0.5
    return np.where(hit, salt.astype(np.float64), x)


def speckle_noise(x: Images, scale: float, random: Random) -> Images:
    """x + scale x n."""
    return x + scale * x * random.standard_normal(x.shape)
