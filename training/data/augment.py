"""Random scales, crops, flips, colours, cutout and mixup for a whole batch, every sample with its own draw.

Drawing and applying are separate functions. The generator alone decides the draw, so both gradients of one SAM step
see the same augmented batch. Order: scale and window, colours, crop and flip on raw pixels (zero padding is black, as
in torchvision), then normalise, then cutout (zero is the mean colour, as in DeVries and Taylor 2017), then mixup.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.data.dataset import Dataset, normalise
from training.data.resampling import draw_boxes, jitter, resample
from training.recipe_tables import Augment
from training.tasks.segmentation import IGNORED
from training.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Draw:
    """The random choices for one batch; None where the setting is off.

    boxes: (N, 4) top, left, height and width of the part of each image that is kept.
    offsets: (N, 2) row and column of each crop's corner in the padded image.
    flips: (N,) whether each image is mirrored.
    centres: (N, 2) row and column of each cutout's centre.
    """

    offsets: Tensor | None
    flips: Tensor | None
    centres: Tensor | None
    boxes: Tensor | None = None


def draw(count: int, size: tuple[int, int], generator: torch.Generator, settings: Augment) -> Draw:
    """Draw the choices for a batch in a fixed order, so that switching on a later one does not change an earlier one.

    count: images of the batch.
    size: their height and width.
    generator: the source of all random numbers.
    settings: which choices are drawn.
    """
    offsets = flips = centres = boxes = None
    if settings.scale or settings.area or settings.crop:
        boxes = draw_boxes(count, size, generator, settings)
        size = settings.crop or size
    if settings.padding:
        offsets = torch.randint(0, 2 * settings.padding + 1, (count, 2), generator=generator)
    if settings.flip:
        flips = torch.rand(count, generator=generator) < 0.5
    if settings.cutout:
        centres = torch.stack([torch.randint(0, side, (count,), generator=generator) for side in size], dim=1)
    return Draw(offsets, flips, centres, boxes)


def crop_and_flip(
    images: Tensor, offsets: Tensor | None, flips: Tensor | None, padding: int, fill: int | None = 0
) -> Tensor:
    """Cut each image's window out of the padded image and mirror it.

    images: (N, C, H, W) of any dtype.
    offsets, flips: as in `Draw`.
    padding: pixels that are added on every side.
    fill: their value; None: the image reflected.
    """
    if offsets is None and flips is None:
        return images
    count, channels, height, width = images.shape
    rows = torch.arange(height, device=images.device).expand(count, height)
    columns = torch.arange(width, device=images.device).expand(count, width)
    if flips is not None:
        columns = torch.where(flips.to(images.device)[:, None], columns.flip(1), columns)
    if offsets is not None:
        images = _pad(images, padding, fill)
        corner = offsets.to(images.device)
        rows, columns = rows + corner[:, :1], columns + corner[:, 1:]
    pixels = rows[:, :, None] * images.shape[3] + columns[:, None, :]
    pixels = pixels.view(count, 1, height * width).expand(count, channels, height * width)
    return images.reshape(count, channels, -1).gather(2, pixels).view(count, channels, height, width)


def _pad(images: Tensor, padding: int, fill: int | None) -> Tensor:
    if fill is not None:
        return functional.pad(images, [padding] * 4, value=fill)
    if padding >= min(images.shape[2:]):
        raise ValueError(f"augment.padding = {padding} reflects more than images of {tuple(images.shape[2:])} pixels")
    return functional.pad(images, [padding] * 4, mode="reflect")


def cut_out(images: Tensor, centres: Tensor, side: int) -> Tensor:
    """Set a square of each image to zero; the part that lies beyond the border is ignored.

    images: (N, C, H, W).
    centres: (N, 2) row and column; a square begins side // 2 before them.
    side: rows and columns of a square.
    """
    inside = []
    for axis, length in enumerate(images.shape[2:]):
        first = centres[:, axis : axis + 1].to(images.device) - side // 2
        position = torch.arange(length, device=images.device)
        inside.append((position >= first) & (position < first + side))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return images.masked_fill(square, 0)


def list_changes(settings: Augment) -> list[str]:
    """List the settings that change images; none if they are left as they are."""
    return [key for key, value in settings.model_dump(exclude={"border"}).items() if value]


def check_augment(settings: Augment, task: Task) -> None:
    """Raise ValueError for a setting that means nothing for the inputs or targets of a task.

    settings: the recipe's.
    task: of the data set.
    """
    on = list_changes(settings)
    if on and task.inputs == "tokens":
        raise ValueError(f"augment.{on[0]} changes images, but {task.name} has token sequences; leave it out")
    if settings.mixup and task.targets == "map":
        raise ValueError(f"augment.mixup mixes labels of examples, but {task.name} has label maps; leave it out")


def augment(
    inputs: Tensor,
    targets: Tensor,
    generator: torch.Generator,
    settings: Augment,
    *,
    dataset: Dataset,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Scale, crop, flip, normalise and cut out a batch of raw images; label maps follow their images.

    inputs: images (N, C, H, W), which are not changed; token sequences come back as they are.
    targets: labels (N,), or label maps (N, H, W), whose pixels beyond the border are ignored.
    generator: the source of all random numbers.
    settings: what is done to the images.
    dataset: whose mean and standard deviation normalise them.
    dtype: of the result.
    Returns inputs as the network sees them, and their targets.
    """
    if dataset.task.inputs == "tokens":
        return normalise(inputs, dataset, dtype), targets
    size = (inputs.shape[2], inputs.shape[3])
    chosen = draw(len(inputs), size, generator, settings)
    windows, maps = inputs, targets[:, None] if dataset.task.targets == "map" else None
    if chosen.boxes is not None:
        windows = resample(windows, chosen.boxes, settings.crop or size)
        if maps is not None:
            maps = resample(maps, chosen.boxes, settings.crop or size, nearest=True, fill=IGNORED)
    if settings.jitter:
        windows = jitter(windows, settings.jitter, generator)
    fill = 0 if settings.border == "zeros" else None
    windows = crop_and_flip(windows, chosen.offsets, chosen.flips, settings.padding, fill)
    if maps is not None:
        targets = crop_and_flip(maps, chosen.offsets, chosen.flips, settings.padding, fill=IGNORED).squeeze(1)
    seen = normalise(windows, dataset, dtype)
    return seen if chosen.centres is None else cut_out(seen, chosen.centres, settings.cutout), targets


def draw_mixup(count: int, generator: torch.Generator, alpha: float) -> tuple[float, Tensor]:
    """Draw one weight for the batch, as the authors' code does, and a partner for every example.

    count: examples of the batch.
    generator: the source of all random numbers.
    alpha: the weight has the distribution Beta(alpha, alpha).
    """
    partners = torch.randperm(count, generator=generator)
    # torch's Beta takes no generator, so NumPy's draws, keyed by the next number of ours
    seed = int(torch.randint(0, 2**62, (), generator=generator))
    return float(np.random.Generator(np.random.PCG64(seed)).beta(alpha, alpha)), partners


def mix(images: Tensor, labels: Tensor, weight: float, partners: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mix every example with its partner: weight * x + (1 - weight) * x_partner, and one-hot labels likewise.

    images: (N, ...).
    labels: (N,) class numbers.
    weight: of an example itself.
    partners: (N,) the index of each example's partner.
    classes: how many there are.
    Returns the mixed images, and a weight for every class, (N, classes).
    """
    targets = functional.one_hot(labels, classes).to(images.dtype)
    order = partners.to(images.device)
    return torch.lerp(images[order], images, weight), torch.lerp(targets[order], targets, weight)


def mixup(
    inputs: Tensor, labels: Tensor, generator: torch.Generator, settings: Augment, *, classes: int
) -> tuple[Tensor, Tensor]:
    """Mix the examples of one training step where the settings say so (Zhang et al. 2018).

    inputs: (N, ...).
    labels: (N,) class numbers.
    generator: the source of all random numbers.
    settings: `mixup` is used; with 0 inputs and labels are returned as they are.
    classes: how many there are.
    Returns inputs, and targets (N, classes).
    """
    if not settings.mixup:
        return inputs, labels
    weight, partners = draw_mixup(len(inputs), generator, settings.mixup)
    return mix(inputs, labels, weight, partners, classes)
