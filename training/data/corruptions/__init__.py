"""The nineteen common corruptions in five severities (Hendrycks and Dietterich 2019), in NumPy, for any image size.

Images are (N, C, H, W) with pixels between 0 and 1. Parameters are those of CIFAR-10-C and CIFAR-100-C, made for 32x32;
lengths are pixels and are not scaled to other sizes, where the same severity is milder or harder, except for
elastic_transform, whose published lengths are shares of the size. DEPARTURES names what differs from their files.
A new corruption is one function and one line in CORRUPTIONS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from landscape.errors import choose, whole
from landscape.rng import numpy_generator
from training.data.corruptions.blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from training.data.corruptions.digital import contrast, elastic_transform, pixelate, saturate
from training.data.corruptions.images import Images, Random
from training.data.corruptions.jpeg import jpeg_compression
from training.data.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from training.data.corruptions.weather import brightness, fog, frost, snow, spatter

Parameter = TypeVar("Parameter")
SEVERITIES = (1, 2, 3, 4, 5)
BLOCK = 500  # images that share a generator: noise depends on an image's index, not on how many images there are


def corrupt(pixels: Images, name: str, severity: int, *, seed: int = 0) -> Images:
    """Corrupt images and cut them to whole grey levels, as the published files are.

    pixels: (N, C, H, W) between 0 and 255.
    name: one of CORRUPTIONS.
    severity: 1 (mild) to 5.
    """
    kind = CORRUPTIONS[choose("corruption", name, CORRUPTIONS)]
    whole("severity", severity, most=len(SEVERITIES))
    if pixels.ndim != 4:
        raise ValueError(f"images must have shape (N, C, H, W), got {pixels.shape}")
    if kind.channels is not None and pixels.shape[1] != kind.channels:
        raise ValueError(f"{name} needs images of {kind.channels} channels, got {pixels.shape[1]}")
    found = np.empty(pixels.shape)
    for start in range(0, len(pixels), BLOCK):
        generator = numpy_generator(seed, "corruption", name, severity, start)
        block = pixels[start : start + BLOCK] / 255
        changed = kind.apply(block, kind.parameters[severity - 1], generator)
        # x / 255 * 255 may fall a rounding error below a grey level, which must not cost the level
        found[start : start + BLOCK] = np.floor(np.clip(changed, 0, 1) * 255 + 1e-6)
    return found


@dataclass(frozen=True)
class Corruption(Generic[Parameter]):
    """One kind of corruption.

    apply: (images, parameter, generator) -> corrupted images.
    parameters: one for each severity.
    extra: whether it is one of the four beside the benchmark's fifteen.
    channels: how many it needs, if it does not take any number.
    """

    apply: Callable[[Images, Parameter, Random], Images]
    parameters: tuple[Parameter, ...]
    extra: bool = False
    channels: int | None = None


CORRUPTIONS: dict[str, Corruption[Any]] = {
    "gaussian_noise": Corruption(gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": Corruption(shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": Corruption(impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus_blur": Corruption(defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": Corruption(glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    "motion_blur": Corruption(motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": Corruption(zoom_blur, (1.06, 1.11, 1.16, 1.21, 1.26)),
    "snow": Corruption(
        snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": Corruption(frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": Corruption(fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": Corruption(brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": Corruption(contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": Corruption(
        elastic_transform, ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
    ),
    "pixelate": Corruption(pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": Corruption(jpeg_compression, (80, 65, 58, 50, 40)),
    "speckle_noise": Corruption(speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2), extra=True),
    "gaussian_blur": Corruption(gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1), extra=True),
    "spatter": Corruption(
        spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        extra=True,
    ),
    "saturate": Corruption(saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), extra=True, channels=3),
}


DEPARTURES: dict[str, str] = {
    "frost": "stand-in: ridges of a synthetic plasma fractal instead of photographs of frost; published weights",
    "spatter": "severities 1 to 3 stand-in: drops of water without the edge shading that OpenCV's Canny filter gives",
    "jpeg_compression": "floating point: coefficients half-way between two levels may go another way than in libjpeg",
    "motion_blur": "ImageMagick's kernel, without its rounding to whole levels inside",
    "snow": "ImageMagick's kernel, without its rounding to whole levels inside",
    "pixelate": "Pillow's box filter, without its rounding to whole levels between passes",
    "elastic_transform": "bilinear in floating point; OpenCV rounds positions to 1/32 of a pixel",
}
