"""Image data sets by name, held in memory and identified by a digest."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from landscape.errors import choose, finite, positive, whole
from training.data.readers import COARSE, Pair, read_cifar, read_digits, read_mnist, read_svhn
from training.data.synthetic import MIDDLE, PIXELS, mixture
from training.plugins import call, import_function
from training.settings import Count, Positive, Whole
from training.tasks.classification import CLASSIFICATION, check_labels, count_classes
from training.tasks.task import Task

Pairs = tuple[tuple[object, object], tuple[object, object]]  # (images, labels) for training and for testing


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images, as uint8 (0..255) or float32 in units of the user's choice, and labels 0..classes-1."""

    name: str
    train_images: Tensor  # (N, C, H, H) uint8 or float32
    train_labels: Tensor  # (N,) int64
    test_images: Tensor  # (M, C, H, H), M may be 0
    test_labels: Tensor  # (M,) int64
    classes: int
    mean: tuple[float, ...]  # (C,) of pixels in 0..1, or of float32 images as they are
    std: tuple[float, ...]  # (C,)
    coarse: tuple[int, ...] | None  # superclass of each class, where there are superclasses (CIFAR-100)
    digest: str  # SHA-256 of the four tensors
    task: Task = CLASSIFICATION  # what is asked of a model: its loss and its metrics

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return int(self.train_images.shape[1])

    @property
    def size(self) -> int:
        """Height and width of an image."""
        return int(self.train_images.shape[2])


def make(
    name: str,
    train: tuple[object, object],
    test: tuple[object, object],
    *,
    classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    coarse: Sequence[int] | None = None,
) -> Dataset:
    """Make a Dataset from (images, labels) pairs of tensors or arrays, after checking them.

    name: of the data set, for messages.
    train, test: images (N, C, H, H) and labels (N,).
    classes: how many there are; by default the largest label plus one.
    mean, std: one number per channel; by default those of the training images.
    coarse: the superclass of each class, where there are superclasses.
    """
    train_images, train_labels = _check_pair(f"{name}: train", *train)
    test_images, test_labels = _check_pair(f"{name}: test", *test)
    if len(train_images) == 0:
        raise ValueError(f"{name}: there are no training images")
    if test_images.shape[1:] != train_images.shape[1:] or test_images.dtype != train_images.dtype:
        raise ValueError(
            f"{name}: train and test images must agree, got {train_images.dtype} {tuple(train_images.shape[1:])} "
            f"and {test_images.dtype} {tuple(test_images.shape[1:])}"
        )
    total = count_classes(name, torch.cat([train_labels, test_labels]), classes)
    if mean is None or std is None:
        own_mean, own_std = _compute_moments(train_images)
        mean, std = mean or own_mean, std or own_std
    tensors = (train_images, train_labels, test_images, test_labels)
    blank = Dataset(name, *tensors, total, (), (), tuple(coarse) if coarse is not None else None, _digest(*tensors))
    return with_constants(blank, mean=mean, std=std)


def with_constants(
    dataset: Dataset, *, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> Dataset:
    """Return the same data with other normalisation constants.

    dataset: the data.
    mean, std: one number per channel; by default those of `dataset`.
    """
    chosen = {"mean": dataset.mean if mean is None else mean, "std": dataset.std if std is None else std}
    for key, values in chosen.items():
        if len(values) != dataset.channels:
            raise ValueError(f"{dataset.name}: {key} needs {dataset.channels} numbers, one per channel; got {values}")
    for value in chosen["std"]:
        positive(f"{dataset.name}: std", value)
    constants = {key: tuple(float(value) for value in values) for key, values in chosen.items()}
    return dataclasses.replace(dataset, mean=constants["mean"], std=constants["std"])


def _check_pair(what: str, images: object, labels: object) -> Pair:
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.require(images, requirements=["C", "W"]))
    if not isinstance(images, Tensor) or images.dtype not in (torch.uint8, torch.float32):
        kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"{what} images must be a tensor or array of uint8 or float32, got {kind}")
    if images.ndim != 4 or images.shape[2] != images.shape[3]:
        hint = ": write images[:, None] to add the channel axis" if images.ndim == 3 else ""
        raise ValueError(f"{what} images must be square, of shape (N, C, H, H), got {tuple(images.shape)}{hint}")
    checked = check_labels(what, labels, len(images))
    if images.is_floating_point():
        finite(f"{what} images", images)
    return images.detach().cpu().contiguous(), checked


def _compute_moments(images: Tensor) -> tuple[list[float], list[float]]:
    """Compute mean and standard deviation per channel; 1 for a constant channel, since images are divided by it."""
    mean, std = [], []
    for channel in images.unbind(1):
        if images.dtype == torch.uint8:  # from the histogram, without a float copy of all the pixels
            weights = torch.bincount(channel.reshape(-1), minlength=256).double() / channel.numel()
            values = torch.arange(256).double() / 255
        else:
            values = channel.reshape(-1).double()
            weights = torch.full_like(values, 1 / len(values))
        centre = float(values @ weights)
        spread = float((values - centre).square() @ weights) ** 0.5
        mean.append(centre)
        std.append(spread if bool(channel.max() > channel.min()) else 1.0)
    return mean, std


def _digest(*tensors: Tensor) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        total.update(tensor.numpy().data)
    return total.hexdigest()


def digits() -> Dataset:
    """Handwritten digits that ship with scikit-learn, 1437 + 360 of 1x8x8: nothing to download."""
    return make("digits", *read_digits(), classes=10, mean=(0.3053,), std=(0.3758,))


def synthetic(
    *,
    examples: Annotated[Count, Field(description="training images")] = 10_000,
    test_examples: Annotated[Whole | None, Field(description="test images; default: a fifth of examples")] = None,
    classes: Annotated[Count, Field(description="number of classes")] = 10,
    shape: Annotated[Sequence[int], Field(description="channels, height and width of an image")] = (1, 8, 8),
    separation: Annotated[Positive, Field(description="distance of two classes, in units of the noise")] = 4.0,
    seed: Annotated[int, Field(description="seed of all images")] = 0,
) -> Dataset:
    """Draw a Gaussian mixture of any size: a data set for tests and timings, with a known best accuracy."""
    tests = whole("examples", examples) // 5 if test_examples is None else test_examples
    pairs = mixture((examples, tests), classes=classes, shape=shape, separation=separation, seed=seed)
    mean, std = ((level / 255,) * shape[0] for level in (MIDDLE, PIXELS))
    return make("synthetic", *pairs, classes=classes, mean=mean, std=std)


def mnist(root: Path, download: bool) -> Dataset:
    """Handwritten digits, 60,000 + 10,000 of 1x28x28."""
    return make("mnist", *read_mnist("mnist", root, download), classes=10, mean=(0.1307,), std=(0.3081,))


def fashion_mnist(root: Path, download: bool) -> Dataset:
    """Clothes, 60,000 + 10,000 of 1x28x28."""
    pairs = read_mnist("fashion_mnist", root, download)
    return make("fashion_mnist", *pairs, classes=10, mean=(0.2860,), std=(0.3530,))


def cifar10(root: Path, download: bool) -> Dataset:
    """CIFAR-10, 50,000 + 10,000 of 3x32x32, with the pixels' own deviations.

    FedSAM's code divides by (0.2023, 0.1994, 0.2010), the mean of the images' deviations: give std to follow it.
    """
    pairs = read_cifar("cifar10", root, download)
    return make("cifar10", *pairs, classes=10, mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.243, 0.262))


def cifar100(root: Path, download: bool) -> Dataset:
    """CIFAR-100, 50,000 + 10,000 of 3x32x32, with its 20 superclasses."""
    pairs = read_cifar("cifar100", root, download)
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
    return make("cifar100", *pairs, classes=100, coarse=COARSE, mean=mean, std=std)


def svhn(root: Path, download: bool) -> Dataset:
    """Street-view house numbers, 73,257 + 26,032 of 3x32x32."""
    pairs = read_svhn("svhn", root, download)
    return make("svhn", *pairs, classes=10, mean=(0.4377, 0.4438, 0.4728), std=(0.1980, 0.2010, 0.1970))


DATASETS: dict[str, Callable[..., Dataset]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "digits": digits,
    "fashion_mnist": fashion_mnist,
    "mnist": mnist,
    "svhn": svhn,
    "synthetic": synthetic,
}


def load(
    name: str,
    *,
    root: str | Path | None = None,
    download: bool = False,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    **settings: object,
) -> Dataset:
    """Load a data set by its name, or by calling a user's 'module:function'.

    name: one of DATASETS, or a function that returns a Dataset or ((train images, labels), (test images, labels));
        images are uint8 or float32.
    root: folder of the data, by default $LANDSCAPE_DATA or "data".
    download: whether to download missing files.
    mean, std: replace the constants of the data set.
    settings: of the data set.

    A user's function gets root and download if it has parameters of these names.
    """
    function = import_function("data set", name) if ":" in name else DATASETS[choose("data set", name, DATASETS)]
    folder = Path(root if root is not None else os.environ.get("LANDSCAPE_DATA") or "data")
    loaded = call("data set", name, function, settings, offered={"root": folder, "download": download})
    if not isinstance(loaded, Dataset):
        try:
            (train_images, train_labels), (test_images, test_labels) = cast(Pairs, loaded)
        except (TypeError, ValueError):
            raise ValueError(
                f"data set '{name}' must return a Dataset or ((train images, train labels), (test images, test "
                f"labels)), got {type(loaded).__name__}"
            ) from None
        loaded = make(name, (train_images, train_labels), (test_images, test_labels))
    return with_constants(loaded, mean=mean, std=std)


def pool(dataset: Dataset) -> Dataset:
    """Put train and test images into one training set and leave the test set empty (FedFSA splits every client).

    dataset: the data, which are not changed.
    """
    images = torch.cat([dataset.train_images, dataset.test_images])
    labels = torch.cat([dataset.train_labels, dataset.test_labels])
    no_images, no_labels = images[:0].clone(), labels[:0].clone()
    return dataclasses.replace(
        dataset,
        train_images=images,
        train_labels=labels,
        test_images=no_images,
        test_labels=no_labels,
        digest=_digest(images, labels, no_images, no_labels),
    )


def normalise(images: Tensor, dataset: Dataset, dtype: torch.dtype = torch.float32) -> Tensor:
    """Compute (pixels - mean) / std per channel, with pixels in 0..1; returns a new tensor.

    images: (N, C, H, H) uint8 or float32.
    dataset: whose mean and std.
    dtype: of the result.
    """
    mean, std = (
        torch.tensor(values, dtype=dtype, device=images.device)[:, None, None] for values in (dataset.mean, dataset.std)
    )
    pixels = images.to(dtype, copy=True)
    if images.dtype == torch.uint8:
        pixels /= 255
    return pixels.sub_(mean).div_(std)
