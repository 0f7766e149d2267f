"""Random scales, windows and colours of images, every image with its own draw; label maps follow their images.

An image is sampled at the points of its own box: bilinear for images, the nearest pixel for label maps. Unlike Pillow,
an image that becomes smaller is not blurred first.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from training.recipe_tables import Augment

RATIO = (3 / 4, 4 / 3)  # of the sides of a box that is drawn by its area, as in torchvision
TRIES = 10  # boxes that are drawn by their area before the one in the middle is taken, as there
GREY = (0.299, 0.587, 0.114)  # shares of red, green and blue


def draw_boxes(count: int, size: tuple[int, int], generator: torch.Generator, settings: Augment) -> Tensor:
    """Draw the part of each image that is kept: top, left, height and width in its pixels, (count, 4).

    count: images of the batch.
    size: their height and width.
    generator: the source of all random numbers.
    settings: `scale`, `area` and `crop` are used.
    """
    if settings.area is not None:
        return _draw_areas(count, size, generator, settings.area)
    target = torch.tensor(settings.crop or size, dtype=torch.float64)
    factor = torch.ones(count, 1, dtype=torch.float64)
    if settings.scale is not None:
        low, high = settings.scale
        factor = low + (high - low) * torch.rand(count, 1, generator=generator, dtype=torch.float64)
    sides = target / factor
    free = torch.tensor(size, dtype=torch.float64) - sides  # below zero where the window is larger than the image
    corner = free * torch.rand(count, 2, generator=generator, dtype=torch.float64)
    if settings.scale is None:
        corner = corner.round()  # whole pixels, so that nothing is blurred
    return torch.cat([corner, sides], dim=1)


def _draw_areas(count: int, size: tuple[int, int], generator: torch.Generator, area: tuple[float, float]) -> Tensor:
    """Draw boxes by their share of the image's area and the ratio of their sides (RandomResizedCrop)."""
    height, width = size
    shares = torch.empty(count, TRIES, dtype=torch.float64).uniform_(*area, generator=generator)
    low, high = (torch.tensor(one, dtype=torch.float64).log() for one in RATIO)
    ratios = (low + (high - low) * torch.rand(count, TRIES, generator=generator, dtype=torch.float64)).exp()
    places = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    widths, heights = (
        (height * width * shares * ratios).sqrt().round(),
        (height * width * shares / ratios).sqrt().round(),
    )
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    first = fits.int().argmax(dim=1, keepdim=True)
    drawn = torch.cat([heights.gather(1, first), widths.gather(1, first)], dim=1)
    sides = torch.where(fits.any(dim=1, keepdim=True), drawn, _find_middle(size))
    free = torch.tensor(size, dtype=torch.float64) - sides
    corner = torch.where(fits.any(dim=1, keepdim=True), (free * places).round(), (free / 2).round())
    return torch.cat([corner, sides], dim=1)


def _find_middle(size: tuple[int, int]) -> Tensor:
    """Find height and width of the largest box in the middle whose sides have an allowed ratio."""
    height, width = size
    ratio = min(max(width / height, RATIO[0]), RATIO[1])
    inside = (min(height, round(width / ratio)), min(width, round(height * ratio)))
    return torch.tensor(inside, dtype=torch.float64)


def resample(images: Tensor, boxes: Tensor, size: tuple[int, int], *, nearest: bool = False, fill: int = 0) -> Tensor:
    """Bring the box of each image to a size.

    images: (N, C, H, W) of any dtype, which is that of the result.
    boxes: (N, 4), as `draw_boxes` gives them; they may reach over the border.
    size: height and width of the result.
    nearest: take the nearest pixel instead of interpolating: for label maps.
    fill: value beyond the border.
    """
    rows, columns = (_place(boxes[:, axis], boxes[:, axis + 2], size[axis]) for axis in (0, 1))  # (N, h), (N, w)
    height, width = images.shape[2:]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    inside = inside[:, None].to(images.device)
    if nearest:
        y, x = rows.floor().long().clamp(0, height - 1), columns.floor().long().clamp(0, width - 1)
        pixels = (y[:, :, None] * width + x[:, None, :]).flatten(1)[:, None].to(images.device)
        taken = images.flatten(2).gather(2, pixels.expand(-1, images.shape[1], -1))
        return taken.view(*images.shape[:2], *size).masked_fill(~inside, fill)
    y, x = 2 * rows / height - 1, 2 * columns / width - 1  # from -1 at one border to 1 at the other
    places = [x[:, None, :].expand(-1, *size), y[:, :, None].expand(-1, *size)]
    grid = torch.stack(places, dim=3).to(images.device, torch.float32)
    found = functional.grid_sample(images.float(), grid, "bilinear", "border", align_corners=False)
    found = found.masked_fill(~inside, fill)
    return found.round().clamp(0, 255).to(torch.uint8) if images.dtype == torch.uint8 else found.to(images.dtype)


def _place(start: Tensor, length: Tensor, count: int) -> Tensor:
    """Middles of `count` equal parts of an interval, (N, count)."""
    middles = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return start[:, None] + length[:, None] * middles


def jitter(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast and saturation of each image, in this order, by at most a share.

    images: (N, C, H, W), uint8; saturation is for three channels.
    strength: factors are drawn from 1 - strength to 1 + strength.
    generator: the source of all random numbers.
    """
    if images.dtype != torch.uint8:
        raise ValueError(f"augment.jitter is for images of bytes, 0 to 255; these are {images.dtype}; leave it out")
    factors = (1 + strength * (2 * torch.rand(3, len(images), 1, 1, 1, generator=generator) - 1)).to(images.device)
    pixels = (images.float() * factors[0]).clamp(0, 255)
    middle = _make_grey(pixels).mean(dim=(2, 3), keepdim=True)
    pixels = (middle + (pixels - middle) * factors[1]).clamp(0, 255)
    if images.shape[1] == len(GREY):
        grey = _make_grey(pixels)
        pixels = (grey + (pixels - grey) * factors[2]).clamp(0, 255)
    return pixels.round().to(torch.uint8)


def _make_grey(pixels: Tensor) -> Tensor:
    if pixels.shape[1] != len(GREY):
        return pixels.mean(dim=1, keepdim=True)
    return (pixels * torch.tensor(GREY, device=pixels.device)[:, None, None]).sum(dim=1, keepdim=True)
