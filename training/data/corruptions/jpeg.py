"""The losses of JPEG."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from training.data.corruptions.images import LUMA, Images, Random

# Annex K of the JPEG standard: luminance and chrominance at quality 50
# fmt: off
LUMINANCE = np.array([
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51,
    87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
]).reshape(8, 8)
CHROMINANCE = np.full((8, 8), 99)
CHROMINANCE[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
# fmt: on


def jpeg_compression(x: Images, quality: int, random: Random) -> Images:
    """The losses of JPEG: colour at half resolution, and rounded cosine coefficients of 8x8 blocks."""
    factor = 5000 / quality if quality < 50 else 200 - 2 * quality
    light, colour = (np.clip((table * factor + 50) // 100, 1, 255) for table in (LUMINANCE, CHROMINANCE))
    grey = 255 * x - 128
    if x.shape[1] != 3:
        return (np.round(_round_coefficients(grey, light)) + 128) / 255
    r, g, b = (255 * x).transpose(1, 0, 2, 3)
    Y = LUMA[0] * r + LUMA[1] * g + LUMA[2] * b
    planes = [_round_coefficients(np.round(Y) - 128, light) + 128]
    for part, weight in ((b, 1.772), (r, 1.402)):
        half = _halve(np.round((part - Y) / weight))
        planes.append(_double(np.clip(np.round(_round_coefficients(half, colour)), -128, 127), x.shape[2:]))
    Y, blue, red = np.clip(planes[0], 0, 255), *planes[1:]
    found = [Y + 1.402 * red, Y - 0.344136 * blue - 0.714136 * red, Y + 1.772 * blue]
    return np.round(np.stack(found, axis=1)) / 255


def _round_coefficients(plane: Images, table: NDArray[np.number]) -> Images:
    """Planes (..., H, W) with the coefficients of their 8x8 blocks rounded to multiples of the table."""
    H, W = plane.shape[-2:]
    padded = np.pad(plane, [(0, 0)] * (plane.ndim - 2) + [(0, -H % 8), (0, -W % 8)], mode="edge")
    shape = (*plane.shape[:-2], padded.shape[-2] // 8, 8, padded.shape[-1] // 8, 8)
    blocks = np.moveaxis(padded.reshape(shape), -2, -3)
    coefficients = np.round(fft.dctn(blocks, axes=(-2, -1), norm="ortho") / table) * table
    back = np.moveaxis(fft.idctn(coefficients, axes=(-2, -1), norm="ortho"), -3, -2)
    return np.asarray(back.reshape(padded.shape)[..., :H, :W])


def _halve(plane: Images) -> Images:
    """Means of 2x2 pixels."""
    H, W = plane.shape[-2:]
    padded = np.pad(plane, [(0, 0), (0, H % 2), (0, W % 2)], mode="edge")
    means: Images = padded.reshape(len(plane), (H + 1) // 2, 2, (W + 1) // 2, 2).mean(axis=(2, 4))
    return np.round(means)


def _double(plane: Images, shape: tuple[int, ...]) -> Images:
    """Twice the resolution with weights 3/4 and 1/4 to the next pixel, as libjpeg does, cut to a shape."""
    for axis in (1, 2):
        line = np.moveaxis(plane, axis, -1)
        edge = np.pad(line, [(0, 0), (0, 0), (1, 1)], mode="edge")
        both = np.stack([0.75 * line + 0.25 * edge[..., :-2], 0.75 * line + 0.25 * edge[..., 2:]], axis=-1)
        plane = np.moveaxis(both.reshape(*line.shape[:-1], -1), -1, axis)
    return plane[:, : shape[0], : shape[1]]
