"""What processing does to images: saturation, contrast, stretching, coarse pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from training.data.corruptions.images import Images, Random


def saturate(x: Images, change: tuple[float, float], random: Random) -> Images:
    """a S + b in hue, saturation and value; a grey pixel has hue 0, red."""
    V: Images = x.max(axis=1, keepdims=True)
    spread = V - x.min(axis=1, keepdims=True)
    S: Images = np.divide(spread, V, out=np.zeros_like(V), where=V > 0)
    wanted = np.clip(change[0] * S + change[1], 0, 1)
    ratio: Images = np.divide(wanted, S, out=np.zeros_like(S), where=S > 0)
    red = np.array([0.0, 1.0, 1.0])[:, None, None]
    return np.where(S > 0, V - (V - x) * ratio, V - V * wanted * red)


def contrast(x: Images, share: float, random: Random) -> Images:
    """Differences to each channel's mean, made smaller."""
    mean: Images = x.mean(axis=(2, 3), keepdims=True)
    return mean + share * (x - mean)


def elastic_transform(x: Images, stretch: tuple[float, ...], random: Random) -> Images:
    """A random affine map of three points, then a smooth random displacement; lengths are shares of the size."""
    N, _, H, W = x.shape
    amount, sigma, jitter = (min(H, W) * share for share in stretch)
    middle, reach = np.array([W // 2, H // 2], dtype=np.float64), max(min(H, W) // 3, 1)
    points = middle + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + random.uniform(-jitter, jitter, (N, 3, 2))
    back = np.linalg.solve(np.concatenate([moved, np.ones((N, 3, 1))], axis=2), points)  # (N, 3, 2): moved to points
    columns, rows = np.meshgrid(np.arange(W, dtype=np.float64), np.arange(H, dtype=np.float64))
    source = np.stack([columns, rows, np.ones_like(rows)], axis=-1) @ back[:, None]  # (N, H, W, 2)
    x = sample_bilinear(x, source[..., 1], source[..., 0], "mirror")
    right, down = (
        amount * ndimage.gaussian_filter(random.uniform(-1, 1, (N, H, W)), (0, sigma, sigma), truncate=3)
        for _ in range(2)
    )
    return sample_bilinear(x, rows + down, columns + right, "reflect")


def sample_bilinear(x: Images, rows: Images, columns: Images, border: str) -> Images:
    """Bilinear values of images at given rows and columns, (N, H, W) each.

    border: "mirror" at the centres of the outermost pixels, or "reflect" at their edges.
    """
    n, c = np.arange(len(x))[:, None, None, None], np.arange(x.shape[1])[:, None, None]
    total = np.zeros_like(x)
    for down in (0, 1):
        for right in (0, 1):
            below, beside = np.floor(rows) + down, np.floor(columns) + right
            weight = (1 - np.abs(rows - below)) * (1 - np.abs(columns - beside))
            i, j = _fold_indices(below, x.shape[2], border), _fold_indices(beside, x.shape[3], border)
            total += weight[:, None] * x[n, c, i[:, None], j[:, None]]
    return total


def _fold_indices(places: Images, size: int, border: str) -> NDArray[np.int64]:
    """Indices outside of an axis, folded back into it."""
    if size == 1:
        return np.zeros(places.shape, dtype=np.int64)
    twice = 0 if border == "mirror" else 1  # whether the pixel at the border appears twice
    period = 2 * (size - 1 + twice)
    inside = places.astype(np.int64) % period
    return np.where(inside < size, inside, period - twice - inside)


def pixelate(x: Images, share: float, random: Random) -> Images:
    """Fewer pixels, and back, each the mean of those whose centres it covers."""
    for axis, size in ((2, x.shape[2]), (3, x.shape[3])):
        fewer = max(int(size * share), 1)
        matrix = _box_filter(fewer, size) @ _box_filter(size, fewer)
        x = matrix @ x if axis == 2 else x @ matrix.T
    return x


def _box_filter(size: int, wanted: int) -> NDArray[np.float64]:
    """Pillow's BOX filter along one axis as a matrix (wanted, size)."""
    scale = size / wanted
    reach = max(scale, 1.0) / 2
    offsets = np.arange(size) + 0.5 - (np.arange(wanted)[:, None] + 0.5) * scale
    covered = ((offsets > -reach) & (offsets <= reach)).astype(np.float64)
    return np.asarray(covered / covered.sum(axis=1, keepdims=True))
