"""Blur of five kinds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from training.data.corruptions.images import Images, Random


def gaussian_blur(x: Images, sigma: float, random: Random) -> Images:
    """A Gaussian blur."""
    return np.asarray(ndimage.gaussian_filter(x, (0, 0, sigma, sigma), mode="nearest"))


def defocus_blur(x: Images, lens: tuple[float, float], random: Random) -> Images:
    """A disk of a radius, softened by a 3x3 Gaussian."""
    radius, soft = lens
    reach = int(np.ceil(radius)) + 1
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    bell = np.exp(-0.5 * (np.arange(-1, 2) / soft) ** 2)
    bell /= bell.sum()
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(bell, bell), mode="constant")
    return np.asarray(ndimage.convolve(x, kernel[None, None], mode="mirror"))


def glass_blur(x: Images, glass: tuple[float, int, int], random: Random) -> Images:
    """Pixels take the colour of a neighbour above or to the left, between two Gaussian blurs.

    The published code means to swap neighbours, but its swap of two views copies one over the other; and it visits
    pixels from the last to the first, so what is copied has not been changed yet.
    """
    sigma, reach, times = glass
    x = np.floor(gaussian_blur(x, sigma, random) * 255 + 1e-6) / 255
    N, _, H, W = x.shape
    n, rows, columns = np.ogrid[:N, reach + 1 : H, reach + 1 : W]
    for _ in range(times):
        down, right = random.integers(-reach, reach, (2, N, max(H - reach - 1, 0), max(W - reach - 1, 0)))
        moved = x.copy()
        moved.transpose(0, 2, 3, 1)[:, reach + 1 :, reach + 1 :] = x.transpose(0, 2, 3, 1)[
            n, rows + down, columns + right
        ]
        x = moved
    return gaussian_blur(x, sigma, random)


def motion_blur(x: Images, motion: tuple[float, float], random: Random) -> Images:
    """A trail in a random direction within 45 degrees of the horizontal."""
    return blur_along(x, *motion, random.uniform(-45, 45, len(x)))


def blur_along(x: Images, radius: float, sigma: float, degrees: NDArray[np.float64]) -> Images:
    """ImageMagick's motion blur: a half Gaussian trail of 2 radius + 1 pixels in each image's own direction."""
    N, C, H, W = x.shape
    steps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    weights /= weights.sum()
    angle = np.radians(degrees)
    n, c = np.arange(N)[:, None, None, None], np.arange(C)[:, None, None]
    total = np.zeros_like(x)
    for step, weight in zip(steps, weights, strict=True):
        down, right = (np.ceil(step * part - 0.5).astype(int)[:, None] for part in (np.sin(angle), np.cos(angle)))
        rows, columns = np.clip(np.arange(H) + down, 0, H - 1), np.clip(np.arange(W) + right, 0, W - 1)
        total += weight * x[n, c, rows[:, None, :, None], columns[:, None, None, :]]
    return total


def zoom_blur(x: Images, most: float, random: Random) -> Images:
    """The mean of the image and of its enlargements by 1, 1.01, ..., most."""
    factors = np.arange(1, most, 0.01)  # as published: rounding decides whether `most` itself is among them
    return (x + sum(enlarge(x, factor) for factor in factors)) / (len(factors) + 1)


def enlarge(x: Images, factor: float) -> Images:
    """The middle of the images, enlarged to their size."""
    return _zoom_matrix(x.shape[2], factor) @ x @ _zoom_matrix(x.shape[3], factor).T


def _zoom_matrix(size: int, factor: float) -> NDArray[np.float64]:
    """Linear interpolation along one axis as a matrix (size, size): enlargement acts on rows and columns apart."""
    kept = int(np.ceil(size / factor))
    top = (size - kept) // 2
    wide = ndimage.zoom(np.eye(kept), (factor, 1), order=1)
    trim = (len(wide) - size) // 2
    matrix = np.zeros((size, size))
    matrix[:, top : top + kept] = wide[trim : trim + size]
    return matrix
