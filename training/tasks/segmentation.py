"""Semantic segmentation: a class for every pixel, outputs (B, classes, H, W) and label maps (B, H, W).

Pixels of label 255 count for nothing: neither in the loss, whose mean is over the other pixels of all images, nor in
the pixel accuracy, nor in the mean IoU, which comes from one confusion matrix over all test images.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from landscape.results import Evaluation
from training.tasks.task import Metrics, Task, TaskLoss

Floats = NDArray[np.float64]
IGNORED = 255
MOST_CLASSES = 255  # a label map is stored as bytes


def mean_over_pixels(outputs: Tensor, targets: Tensor, /, *, reduction: str = "mean") -> Tensor:
    """Return the mean loss over the valid pixels of a batch, 0 if it has none; "none": of each pixel.

    outputs: (B, classes, H, W).
    targets: (B, H, W).
    reduction: "mean" or "none".
    """
    if reduction == "none":
        return functional.cross_entropy(outputs, targets, ignore_index=IGNORED, reduction="none")
    total = functional.cross_entropy(outputs, targets, ignore_index=IGNORED, reduction="sum")
    return total / (targets != IGNORED).sum().clamp(min=1)  # torch's own mean is NaN where all pixels are ignored


def mean_over_hard_pixels(outputs: Tensor, targets: Tensor, /, *, share: float, reduction: str = "mean") -> Tensor:
    """Return the mean over images of the mean of each image's largest losses; "none": that of each image.

    outputs: (B, classes, H, W).
    targets: (B, H, W).
    share: of all pixels of an image, at least one; pixels that are ignored have the loss 0.
    reduction: "mean" or "none".

    As FedDrive's code does it; the count of an image does not depend on how many of its pixels are ignored.
    """
    losses = functional.cross_entropy(outputs, targets, ignore_index=IGNORED, reduction="none").flatten(1)
    count = max(int(share * losses.shape[1]), 1)
    hardest = losses.topk(count, dim=1, sorted=False).values.mean(dim=1)
    return hardest if reduction == "none" else hardest.mean()


def make_loss(hard_pixels: float | None) -> TaskLoss:
    """Make the loss of one head in training.

    hard_pixels: the share of each image's pixels, those with the largest losses, that count; None: all valid ones.
    """
    return mean_over_pixels if hard_pixels is None else functools.partial(mean_over_hard_pixels, share=hard_pixels)


def count_correct(outputs: Tensor, targets: Tensor) -> tuple[int, int]:
    """Count the valid pixels whose class has the largest output, and all valid pixels.

    outputs: (B, classes, H, W).
    targets: (B, H, W).
    """
    valid = targets != IGNORED
    return int(((outputs.argmax(dim=1) == targets) & valid).sum()), int(valid.sum())


def compute_ious(confusion: Tensor) -> Floats:
    """Compute the intersection over union of every class; NaN for a class that no pixel has.

    confusion: (classes, classes), rows are the true classes.

    >>> compute_ious(torch.tensor([[3, 1], [0, 0]])).tolist()
    [0.75, nan]
    """
    counts = confusion.double().numpy()
    right, truth = np.diag(counts), counts.sum(axis=1)
    union = truth + counts.sum(axis=0) - right
    ious: Floats = np.divide(right, union, out=np.full(len(right), np.nan), where=truth > 0)
    return ious


def make_metrics(evaluation: Evaluation, confusion: Tensor | None) -> Metrics:
    """Return test loss, pixel accuracy, and the mean IoU over the classes that some pixel has.

    evaluation: of a model on the test data.
    confusion: (classes, classes) over all test images.

    >>> make_metrics(Evaluation(0.5, 0.25, None), torch.tensor([[3, 1], [0, 0]]))
    {'test_loss': 0.5, 'accuracy': 0.75, 'miou': 0.75}
    """
    assert confusion is not None
    ious = compute_ious(confusion)
    there = ~np.isnan(ious)
    accuracy = None if evaluation.error is None else 1 - evaluation.error
    miou = float(ious[there].mean()) if there.any() else None
    return {"test_loss": evaluation.loss, "accuracy": accuracy, "miou": miou}


def check_maps(name: str, maps: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return label maps as bytes (N, H, W), or raise ValueError where they are not class numbers and 255.

    name: whose maps they are, for messages.
    maps: whole numbers.
    shape: (N, H, W) of the images.
    """
    if maps.is_floating_point() or maps.dtype == torch.bool:
        raise ValueError(f"{name} label maps must be whole numbers, got {maps.dtype}")
    if tuple(maps.shape) != shape:
        raise ValueError(f"{name} label maps must have the size of their images, {shape}; got {tuple(maps.shape)}")
    if maps.numel() and not (int(maps.min()) >= 0 and int(maps.max()) <= IGNORED):
        raise ValueError(
            f"{name} label maps must hold class numbers from 0 on, and {IGNORED} where a pixel does not count; got "
            f"values from {int(maps.min())} to {int(maps.max())}"
        )
    return maps.detach().cpu().to(torch.uint8).contiguous()


def count_classes(name: str, maps: tuple[Tensor, ...], classes: int | None) -> int:
    """Return the number of classes, or raise ValueError for a label outside 0..classes-1 that is not 255.

    name: of the data set, for messages.
    maps: all label maps, for training and testing.
    classes: how many there are; by default the largest label plus one.
    """
    largest = max((int(one[one != IGNORED].max()) for one in maps if bool((one != IGNORED).any())), default=0)
    total = largest + 1 if classes is None else classes
    if not largest < total <= MOST_CLASSES:
        raise ValueError(
            f"{name}: label maps must hold class numbers in 0..{total - 1}, at most {MOST_CLASSES} classes, and "
            f"{IGNORED} for pixels that do not count; got {largest}"
        )
    return total


SEGMENTATION = Task(
    name="segmentation",
    inputs="images",
    targets="map",
    loss=functools.partial(functional.cross_entropy, ignore_index=IGNORED),
    count_correct=count_correct,
    make_metrics=make_metrics,
    training_loss=make_loss,
    ignored=IGNORED,
    confusion=True,
)
