"""What weather does to images: snow, frost, fog, spatter and brightness."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from training.data.corruptions.blur import blur_along, enlarge
from training.data.corruptions.images import Images, Random, make_colour, to_grey


def snow(x: Images, sky: tuple[float, ...], random: Random) -> Images:
    """Flakes that fall in two opposite directions, over a whitened image."""
    mean, scale, zoom, least, radius, sigma, kept = sky
    N, _, H, W = x.shape
    flakes = enlarge(random.normal(mean, scale, (N, 1, H, W)), zoom)
    flakes = np.floor(np.clip(np.where(flakes < least, 0, flakes), 0, 1) * 255) / 255
    flakes = blur_along(flakes, radius, sigma, random.uniform(-135, -45, (N,)))
    white = kept * x + (1 - kept) * np.maximum(x, 1.5 * to_grey(x) + 0.5)
    return white + flakes + flakes[:, :, ::-1, ::-1]


def frost(x: Images, ice: tuple[float, float], random: Random) -> Images:
    """a x + b ice; the ice is a plasma fractal whose ridges shine (see DEPARTURES)."""
    cloud = make_plasma(len(x), x.shape[2:], 2.0, random)
    return ice[0] * x + ice[1] * (1 - np.abs(2 * cloud - 1))


def fog(x: Images, mist: tuple[float, float], random: Random) -> Images:
    """A plasma fractal added, at constant largest brightness."""
    amount, decay = mist
    top: Images = x.max(axis=(1, 2, 3), keepdims=True)
    return (x + amount * make_plasma(len(x), x.shape[2:], decay, random)) * top / (top + amount)


def make_plasma(count: int, shape: tuple[int, ...], decay: float, random: Random) -> Images:
    """Diamond-square clouds (count, 1, *shape) between 0 and 1, cut out of a square of a power of two."""
    size = 1 << (max(*shape, 2) - 1).bit_length()
    cloud = np.zeros((count, size, size))
    step, wobble = size, 100.0

    def fill(total: Images) -> Images:
        return total / 4 + wobble * random.uniform(-wobble, wobble, total.shape)

    while step >= 2:
        half = step // 2
        corners = cloud[:, ::step, ::step]
        rows = corners + np.roll(corners, -1, axis=1)
        middle = cloud[:, half::step, half::step] = fill(rows + np.roll(rows, -1, axis=2))
        beside = corners + np.roll(corners, -1, axis=2)
        cloud[:, ::step, half::step] = fill(middle + np.roll(middle, 1, axis=1) + beside)
        cloud[:, half::step, ::step] = fill(middle + np.roll(middle, 1, axis=2) + rows)
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
        cover = np.where(cover < 0.8, 0.0, cover)
        return np.asarray(x * (1 - cover) + cover * make_colour((63, 42, 20), C))
    top = liquid.max(axis=(2, 3), keepdims=True)
    relative: Images = np.divide(liquid, top, out=np.zeros_like(liquid), where=top > 0)
    return x + strength * relative * make_colour((175, 238, 238), C)


def brightness(x: Images, more: float, random: Random) -> Images:
    """V + more in hue, saturation and value: all channels grow in proportion."""
    V: Images = x.max(axis=1, keepdims=True)
    raised = np.clip(V + more, 0, 1)
    return np.where(V > 0, x * np.divide(raised, V, out=np.ones_like(V), where=V > 0), raised)
