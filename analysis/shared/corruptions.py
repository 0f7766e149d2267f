"""The nineteen common corruptions in five severities (Hendrycks and Dietterich 2019), in NumPy, for any image size.

Images are (N, C, H, W) with pixels between 0 and 1. Parameters are those of CIFAR-10-C and CIFAR-100-C, made for 32x32;
lengths are pixels and are not scaled to other sizes, where the same severity is milder or harder, except for
elastic_transform, whose published lengths are shares of the size. DEPARTURES names what differs from their files.
A new corruption is one function and one line in CORRUPTIONS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage

from landscape.errors import choose, whole
from landscape.rng import numpy_generator

Images = Any  # (N, C, H, W) float64: NumPy has no types for shapes, and loses the others on the way
Random = np.random.Generator
SEVERITIES = (1, 2, 3, 4, 5)
BLOCK = 500  # images that share a generator: noise depends on an image's place, not on how many are asked for
LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as JPEG and OpenCV have it

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


def corrupt(pixels: Images, name: str, severity: int, *, seed: int = 0) -> Images:
    """Images in [0, 255], corrupted and cut to whole grey levels as the published files are."""
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


def gaussian_blur(x: Images, sigma: float, random: Random) -> Images:
    return ndimage.gaussian_filter(x, (0, 0, sigma, sigma), mode="nearest")


def defocus_blur(x: Images, lens: tuple[float, float], random: Random) -> Images:
    """A disk of a radius, softened by a 3x3 Gaussian."""
    radius, soft = lens
    reach = int(np.ceil(radius)) + 1
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    bell = np.exp(-0.5 * (np.arange(-1, 2) / soft) ** 2)
    bell /= bell.sum()
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(bell, bell), mode="constant")
    return ndimage.convolve(x, kernel[None, None], mode="mirror")


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
    return _moved(x, *motion, random.uniform(-45, 45, len(x)))


def _moved(x: Images, radius: float, sigma: float, degrees: NDArray[np.float64]) -> Images:
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
    return (x + sum(_enlarged(x, factor) for factor in factors)) / (len(factors) + 1)


def _enlarged(x: Images, factor: float) -> Images:
    """The middle of the images, enlarged to their size."""
    return _enlarging(x.shape[2], factor) @ x @ _enlarging(x.shape[3], factor).T


def _enlarging(size: int, factor: float) -> NDArray[np.float64]:
    """Linear interpolation along one axis as a matrix (size, size): enlargement acts on rows and columns apart."""
    kept = int(np.ceil(size / factor))
    top = (size - kept) // 2
    wide = ndimage.zoom(np.eye(kept), (factor, 1), order=1)
    trim = (len(wide) - size) // 2
    matrix = np.zeros((size, size))
    matrix[:, top : top + kept] = wide[trim : trim + size]
    return matrix


def snow(x: Images, sky: tuple[float, ...], random: Random) -> Images:
    """Flakes that fall in two opposite directions, over a whitened image."""
    mean, scale, zoom, least, radius, sigma, kept = sky
    N, _, H, W = x.shape
    flakes = _enlarged(random.normal(mean, scale, (N, 1, H, W)), zoom)
    flakes = np.floor(np.clip(np.where(flakes < least, 0, flakes), 0, 1) * 255) / 255
    flakes = _moved(flakes, radius, sigma, random.uniform(-135, -45, N))
    white = kept * x + (1 - kept) * np.maximum(x, 1.5 * _grey(x) + 0.5)
    return white + flakes + flakes[:, :, ::-1, ::-1]


def frost(x: Images, ice: tuple[float, float], random: Random) -> Images:
    """a x + b ice; the ice is a plasma fractal whose ridges shine (see DEPARTURES)."""
    cloud = _plasma(len(x), x.shape[2:], 2.0, random)
    return ice[0] * x + ice[1] * (1 - np.abs(2 * cloud - 1))


def fog(x: Images, mist: tuple[float, float], random: Random) -> Images:
    """A plasma fractal added, at constant largest brightness."""
    amount, decay = mist
    top = x.max(axis=(1, 2, 3), keepdims=True)
    return (x + amount * _plasma(len(x), x.shape[2:], decay, random)) * top / (top + amount)


def _plasma(count: int, shape: tuple[int, ...], decay: float, random: Random) -> Images:
    """Diamond-square clouds (count, 1, *shape) between 0 and 1, cut out of a square of a power of two."""
    size = 1 << (max(*shape, 2) - 1).bit_length()
    cloud = np.zeros((count, size, size))
    step, wobble = size, 100.0

    def filled(total: Images) -> Images:
        return total / 4 + wobble * random.uniform(-wobble, wobble, total.shape)

    while step >= 2:
        half = step // 2
        corners = cloud[:, ::step, ::step]
        rows = corners + np.roll(corners, -1, axis=1)
        middle = cloud[:, half::step, half::step] = filled(rows + np.roll(rows, -1, axis=2))
        beside = corners + np.roll(corners, -1, axis=2)
        cloud[:, ::step, half::step] = filled(middle + np.roll(middle, 1, axis=1) + beside)
        cloud[:, half::step, ::step] = filled(middle + np.roll(middle, 1, axis=2) + rows)
        step, wobble = half, wobble / decay
    cloud -= cloud.min(axis=(1, 2), keepdims=True)
    cloud /= cloud.max(axis=(1, 2), keepdims=True)
    return cloud[:, None, : shape[0], : shape[1]]


def spatter(x: Images, drops: tuple[float, ...], random: Random) -> Images:
    """Water (severities 1 to 3, see DEPARTURES) or mud (4 and 5)."""
    mean, scale, sigma, least, strength, mud = drops
    N, C, H, W = x.shape
    liquid = ndimage.gaussian_filter(random.normal(mean, scale, (N, 1, H, W)), (0, 0, sigma, sigma), mode="nearest")
    liquid = np.where(liquid < least, 0, liquid)
    if mud:
        cover = ndimage.gaussian_filter((liquid > least) * 1.0, (0, 0, strength, strength), mode="nearest")
        cover = np.where(cover < 0.8, 0, cover)
        return x * (1 - cover) + cover * _colour((63, 42, 20), C)
    top = liquid.max(axis=(2, 3), keepdims=True)
    return x + strength * np.divide(liquid, top, out=np.zeros_like(liquid), where=top > 0) * _colour((175, 238, 238), C)


def brightness(x: Images, more: float, random: Random) -> Images:
    """V + more in hue, saturation and value: all channels grow in proportion."""
    V = x.max(axis=1, keepdims=True)
    raised = np.clip(V + more, 0, 1)
    return np.where(V > 0, x * np.divide(raised, V, out=np.ones_like(V), where=V > 0), raised)


def saturate(x: Images, change: tuple[float, float], random: Random) -> Images:
    """a S + b in hue, saturation and value; a grey pixel has hue 0, red."""
    V = x.max(axis=1, keepdims=True)
    spread = V - x.min(axis=1, keepdims=True)
    S = np.divide(spread, V, out=np.zeros_like(V), where=V > 0)
    wanted = np.clip(change[0] * S + change[1], 0, 1)
    ratio = np.divide(wanted, S, out=np.zeros_like(S), where=S > 0)
    red = np.array([0.0, 1.0, 1.0])[:, None, None]
    return np.where(S > 0, V - (V - x) * ratio, V - V * wanted * red)


def contrast(x: Images, share: float, random: Random) -> Images:
    """Differences to each channel's mean, made smaller."""
    mean = x.mean(axis=(2, 3), keepdims=True)
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
    x = _sampled(x, source[..., 1], source[..., 0], "mirror")
    right, down = (
        amount * ndimage.gaussian_filter(random.uniform(-1, 1, (N, H, W)), (0, sigma, sigma), truncate=3)
        for _ in range(2)
    )
    return _sampled(x, rows + down, columns + right, "reflect")


def _sampled(x: Images, rows: Images, columns: Images, border: str) -> Images:
    """Bilinear values of images at (N, H, W) places; the border mirrors at pixels' centres, or reflects at edges."""
    n, c = np.arange(len(x))[:, None, None, None], np.arange(x.shape[1])[:, None, None]
    total = np.zeros_like(x)
    for down in (0, 1):
        for right in (0, 1):
            i, j = np.floor(rows) + down, np.floor(columns) + right
            weight = (1 - np.abs(rows - i)) * (1 - np.abs(columns - j))
            inside = (_folded(place, size, border) for place, size in ((i, x.shape[2]), (j, x.shape[3])))
            i, j = (place[:, None] for place in inside)
            total += weight[:, None] * x[n, c, i, j]
    return total


def _folded(places: Any, size: int, border: str) -> Any:
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
        matrix = _boxes(fewer, size) @ _boxes(size, fewer)
        x = matrix @ x if axis == 2 else x @ matrix.T
    return x


def _boxes(size: int, wanted: int) -> Any:
    """Pillow's BOX filter along one axis as a matrix (wanted, size)."""
    scale = size / wanted
    reach = max(scale, 1.0) / 2
    offsets = np.arange(size) + 0.5 - (np.arange(wanted)[:, None] + 0.5) * scale
    covered = ((offsets > -reach) & (offsets <= reach)).astype(np.float64)
    return covered / covered.sum(axis=1, keepdims=True)


def jpeg_compression(x: Images, quality: int, random: Random) -> Images:
    """The losses of JPEG: colour at half resolution, and rounded cosine coefficients of 8x8 blocks."""
    factor = 5000 / quality if quality < 50 else 200 - 2 * quality
    light, colour = (np.clip((table * factor + 50) // 100, 1, 255) for table in (LUMINANCE, CHROMINANCE))
    grey = 255 * x - 128
    if x.shape[1] != 3:
        return (np.round(_rounded(grey, light)) + 128) / 255
    r, g, b = (255 * x).transpose(1, 0, 2, 3)
    Y = LUMA[0] * r + LUMA[1] * g + LUMA[2] * b
    planes = [_rounded(np.round(Y) - 128, light) + 128]
    for part, weight in ((b, 1.772), (r, 1.402)):
        half = _halved(np.round((part - Y) / weight))
        planes.append(_doubled(np.clip(np.round(_rounded(half, colour)), -128, 127), x.shape[2:]))
    Y, blue, red = np.clip(planes[0], 0, 255), *planes[1:]
    found = [Y + 1.402 * red, Y - 0.344136 * blue - 0.714136 * red, Y + 1.772 * blue]
    return np.round(np.stack(found, axis=1)) / 255


def _rounded(plane: Images, table: NDArray[Any]) -> Images:
    """Planes (..., H, W) with the coefficients of their 8x8 blocks rounded to multiples of the table."""
    H, W = plane.shape[-2:]
    padded = np.pad(plane, [(0, 0)] * (plane.ndim - 2) + [(0, -H % 8), (0, -W % 8)], mode="edge")
    shape = (*plane.shape[:-2], padded.shape[-2] // 8, 8, padded.shape[-1] // 8, 8)
    blocks = np.moveaxis(padded.reshape(shape), -2, -3)
    coefficients = np.round(fft.dctn(blocks, axes=(-2, -1), norm="ortho") / table) * table
    back = np.moveaxis(fft.idctn(coefficients, axes=(-2, -1), norm="ortho"), -3, -2)
    return back.reshape(padded.shape)[..., :H, :W]


def _halved(plane: Images) -> Images:
    """Means of 2x2 pixels."""
    H, W = plane.shape[-2:]
    padded = np.pad(plane, [(0, 0), (0, H % 2), (0, W % 2)], mode="edge")
    return np.round(padded.reshape(len(plane), (H + 1) // 2, 2, (W + 1) // 2, 2).mean(axis=(2, 4)))


def _doubled(plane: Images, shape: tuple[int, ...]) -> Images:
    """Twice the resolution with weights 3/4 and 1/4 to the next pixel, as libjpeg does, cut to a shape."""
    for axis in (1, 2):
        line = np.moveaxis(plane, axis, -1)
        edge = np.pad(line, [(0, 0), (0, 0), (1, 1)], mode="edge")
        both = np.stack([0.75 * line + 0.25 * edge[..., :-2], 0.75 * line + 0.25 * edge[..., 2:]], axis=-1)
        plane = np.moveaxis(both.reshape(*line.shape[:-1], -1), -1, axis)
    return plane[:, : shape[0], : shape[1]]


def _grey(x: Images) -> Images:
    """Brightness (N, 1, H, W); the mean where channels are not red, green and blue."""
    weights = LUMA if x.shape[1] == 3 else np.full(x.shape[1], 1 / x.shape[1])
    return np.tensordot(x, weights, axes=(1, 0))[:, None]


def _colour(levels: tuple[int, int, int], channels: int) -> NDArray[np.float64]:
    """A colour for (C, 1, 1), its brightness where channels are not red, green and blue."""
    colour = np.array(levels) / 255
    return (colour if channels == 3 else np.full(channels, LUMA @ colour))[:, None, None]


@dataclass(frozen=True)
class Corruption:
    """One kind: what it does, with what parameters in the five severities."""

    apply: Callable[[Images, Any, Random], Images]
    parameters: tuple[Any, ...]
    extra: bool = False  # one of the four beside the benchmark's fifteen
    channels: int | None = None  # how many it needs, where it does not take any number


CORRUPTIONS: dict[str, Corruption] = {
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
