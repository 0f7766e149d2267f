"""Images as corruptions take them, (N, C, H, W) with pixels between 0 and 1, and their colours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float64]
Random = np.random.Generator
LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as JPEG and OpenCV have it


def to_grey(x: Images) -> Images:
    """Brightness (N, 1, H, W); the mean where channels are not red, green and blue."""
    weights = LUMA if x.shape[1] == 3 else np.full(x.shape[1], 1 / x.shape[1])
    return np.tensordot(x, weights, axes=(1, 0))[:, None]


def make_colour(levels: tuple[int, int, int], channels: int) -> NDArray[np.float64]:
    """A colour for (C, 1, 1), its brightness where channels are not red, green and blue."""
    colour = np.array(levels) / 255
    return (colour if channels == 3 else np.full(channels, LUMA @ colour))[:, None, None]
