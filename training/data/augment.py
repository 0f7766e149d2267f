"""Random crops, flips, cutout and mixup for a whole batch at once, every sample with its own draw.

Drawing and applying are separate functions. The generator alone decides the draw, so both gradients of one SAM step
see the same augmented batch. Order: crop and flip on raw pixels (zero padding is black, as in torchvision),
then normalise, then cutout (zero is the mean colour, as in DeVries and Taylor 2017), then mixup.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.data.datasets import Dataset, normalise
from training.recipe_tables import Augment


@dataclass(frozen=True, eq=False)
class Draw:
    """The random choices for one batch; None where the setting is off."""

    offsets: Tensor | None  # (N, 2) row and column of each crop's corner in the padded image
    flips: Tensor | None  # (N,) bool
    centres: Tensor | None  # (N, 2) row and column of each cutout's centre


def draw(count: int, size: tuple[int, int], generator: torch.Generator, settings: Augment) -> Draw:
    """Choices for `count` images of size (H, W), in a fixed order: a later setting does not change an earlier draw."""
    offsets = flips = centres = None
    if settings.padding:
        offsets = torch.randint(0, 2 * settings.padding + 1, (count, 2), generator=generator)
    if settings.flip:
        flips = torch.rand(count, generator=generator) < 0.5
    if settings.cutout:
        centres = torch.stack([torch.randint(0, side, (count,), generator=generator) for side in size], dim=1)
    return Draw(offsets, flips, centres)


def crop_and_flip(images: Tensor, offsets: Tensor | None, flips: Tensor | None, padding: int) -> Tensor:
    """Each image's window of the zero-padded image, mirrored where `flips` says so; any dtype."""
    if offsets is None and flips is None:
        return images
    count, channels, height, width = images.shape
    rows = torch.arange(height, device=images.device).expand(count, height)
    columns = torch.arange(width, device=images.device).expand(count, width)
    if flips is not None:
        columns = torch.where(flips.to(images.device)[:, None], columns.flip(1), columns)
    if offsets is not None:
        images = functional.pad(images, [padding] * 4)
        corner = offsets.to(images.device)
        rows, columns = rows + corner[:, :1], columns + corner[:, 1:]
    places = rows[:, :, None] * images.shape[3] + columns[:, None, :]
    places = places.view(count, 1, height * width).expand(count, channels, height * width)
    return images.reshape(count, channels, -1).gather(2, places).view(count, channels, height, width)


def cut(images: Tensor, centres: Tensor, side: int) -> Tensor:
    """Zeros in `side` rows and columns around each centre, from centre - side // 2 on; what hangs over is lost."""
    inside = []
    for axis, length in enumerate(images.shape[2:]):
        first = centres[:, axis : axis + 1].to(images.device) - side // 2
        place = torch.arange(length, device=images.device)
        inside.append((place >= first) & (place < first + side))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return images.masked_fill(square, 0)


def augment(
    images: Tensor,
    generator: torch.Generator,
    settings: Augment,
    *,
    dataset: Dataset,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """A raw batch (N, C, H, W) cropped, flipped, normalised and cut; the input stays as it is."""
    chosen = draw(len(images), (images.shape[2], images.shape[3]), generator, settings)
    windows = crop_and_flip(images, chosen.offsets, chosen.flips, settings.padding)
    inputs = normalise(windows, dataset, dtype)
    return inputs if chosen.centres is None else cut(inputs, chosen.centres, settings.cutout)


def draw_mixup(count: int, generator: torch.Generator, alpha: float) -> tuple[float, Tensor]:
    """One weight from Beta(alpha, alpha) for the batch, as in the authors' code, and a partner for every sample."""
    partners = torch.randperm(count, generator=generator)
    # torch's Beta takes no generator, so NumPy's draws, keyed by the next number of ours
    seed = int(torch.randint(0, 2**62, (), generator=generator))
    return float(np.random.Generator(np.random.PCG64(seed)).beta(alpha, alpha)), partners


def mix(images: Tensor, labels: Tensor, weight: float, partners: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """weight * x + (1 - weight) * x_partner, and the same of one-hot labels: (N, classes), made for cross_entropy."""
    targets = functional.one_hot(labels, classes).to(images.dtype)
    order = partners.to(images.device)
    return torch.lerp(images[order], images, weight), torch.lerp(targets[order], targets, weight)


def mixup(
    inputs: Tensor, labels: Tensor, generator: torch.Generator, settings: Augment, *, classes: int
) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one training step (Zhang et al. 2018); labels stay whole numbers where mixup is off."""
    if not settings.mixup:
        return inputs, labels
    weight, partners = draw_mixup(len(inputs), generator, settings.mixup)
    return mix(inputs, labels, weight, partners, classes)
