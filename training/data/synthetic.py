"""Images from a Gaussian mixture: data of any size, with a best accuracy that is known in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from landscape import rng
from landscape.errors import positive, whole

Arrays = tuple[np.ndarray, np.ndarray]  # images (N, C, H, W) uint8, labels (N,) int64
MIDDLE, PIXELS = 128, 16  # grey level of zero, and grey levels per standard deviation of the noise
BLOCK = 65_536  # images made at a time: their noise in float32 takes four times their own room


def mixture(
    counts: Sequence[int], *, classes: int, shape: Sequence[int], separation: float, seed: int
) -> tuple[Arrays, ...]:
    """Draw sets of images: balanced classes y in random order, x = m_y + noise of standard deviation one.

    counts: the number of images in each set.
    classes: how many there are.
    shape: channels, height and width of an image.
    separation: distance of two class means, in standard deviations of the noise.
    seed: of all images.
    Returns (images, labels) of each set.

    The means m are random directions of length separation / sqrt(2), so any two of them lie about `separation`
    apart; two classes at distance d can be told apart with accuracy Phi(d / 2).
    """
    shape = tuple(whole("shape", length) for length in shape)
    size = (whole("classes", classes), int(np.prod(shape)))
    means = rng.numpy_generator(seed, "synthetic", "means").standard_normal(size)
    means *= positive("separation", separation) / np.sqrt(2) / np.linalg.norm(means, axis=1, keepdims=True)
    if MIDDLE / PIXELS - np.abs(means).max() < 4:  # grey levels end at 0 and 255: keep four deviations of noise
        raise ValueError(f"separation={separation} does not fit images of {size[1]} pixels: write a larger shape")
    centres = means.astype(np.float32).reshape(classes, *shape)
    return tuple(
        _sample(whole("examples", count, least=0), centres, rng.numpy_generator(seed, "synthetic", part))
        for part, count in enumerate(counts)
    )


def _sample(count: int, centres: np.ndarray, generator: np.random.Generator) -> Arrays:
    labels = generator.permutation(np.arange(count, dtype=np.int64) % len(centres))
    images = np.empty((count, *centres.shape[1:]), np.uint8)
    for start in range(0, count, BLOCK):
        block = slice(start, start + BLOCK)
        values = generator.standard_normal(images[block].shape, dtype=np.float32)
        values += centres[labels[block]]
        values *= PIXELS
        values += MIDDLE
        images[block] = np.clip(np.rint(values, out=values), 0, 255, out=values)
    return images, labels
