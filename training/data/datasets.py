"""Data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, cast

from pydantic import Field

from landscape.errors import whole
from training.data.dataset import Dataset, make, with_constants
from training.data.published import PUBLISHED, build
from training.data.readers.embedded import read_digits
from training.data.readers.torchvision_folders import COARSE, read_cifar, read_mnist, read_svhn
from training.data.synthetic import MIDDLE, PIXELS, mixture
from training.plugins import ExtensionPoint, accept_function, call
from training.settings import Count, Positive, Whole

Pairs = tuple[tuple[object, object], tuple[object, object]]  # (inputs, targets) for training and for testing


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


def mnist(
    root: Path,
    download: bool,
    *,
    rgb: Annotated[bool, Field(description="three equal channels instead of one (FedSoL)")] = False,
) -> Dataset:
    """Handwritten digits, 60,000 + 10,000 of 1x28x28."""
    pairs, channels = read_mnist("mnist", root, download), 3 if rgb else 1
    if rgb:
        (train, labels), (test, test_labels) = pairs
        pairs = (train.repeat(1, 3, 1, 1), labels), (test.repeat(1, 3, 1, 1), test_labels)
    return make("mnist", *pairs, classes=10, mean=(0.1307,) * channels, std=(0.3081,) * channels)


def fashion_mnist(root: Path, download: bool) -> Dataset:
    """Clothes, 60,000 + 10,000 of 1x28x28."""
    pairs = read_mnist("fashion_mnist", root, download)
    return make("fashion_mnist", *pairs, classes=10, mean=(0.2860,), std=(0.3530,))


def cifar10(root: Path, download: bool) -> Dataset:
    """CIFAR-10, 50,000 + 10,000 of 3x32x32, with the pixels' own deviations.

    FedSAM's code divides by (0.2023, 0.1994, 0.2010), the mean of the images' deviations: give std to follow it.
    """
    contents = read_cifar("cifar10", root, download)
    return build("cifar10", contents, mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.243, 0.262))


def cifar100(root: Path, download: bool) -> Dataset:
    """CIFAR-100, 50,000 + 10,000 of 3x32x32, with its 20 superclasses."""
    contents = read_cifar("cifar100", root, download)
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
    return build("cifar100", contents, coarse=COARSE, mean=mean, std=std)


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
    **PUBLISHED,
}


def find_root(root: str | Path | None) -> Path:
    """Return the folder of the data.

    root: as a recipe gives it; by default $LANDSCAPE_DATA or "data".
    """
    return Path(root if root is not None else os.environ.get("LANDSCAPE_DATA") or "data")


def accept_source(name: str, found: object) -> Callable[..., Dataset]:
    """Return a user's own function that loads data; name: its 'module:name', for messages."""
    return cast(Callable[..., Dataset], accept_function("data set", name, found))


SOURCES = ExtensionPoint("data set", DATASETS, accept_source)


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

    name: one of DATASETS, or a function that returns a Dataset or ((train inputs, targets), (test inputs, targets)), as
        `dataset.make` takes them.
    root: folder of the data, by default $LANDSCAPE_DATA or "data".
    download: whether to download missing files.
    mean, std: replace the constants of the data set.
    settings: of the data set.

    A user's function gets root and download if it has parameters of these names.
    """
    function = SOURCES.find(name)
    offered = {"root": find_root(root), "download": download}
    loaded: object = call("data set", name, function, settings, offered=offered)
    if not isinstance(loaded, Dataset):
        try:
            (train_inputs, train_targets), (test_inputs, test_targets) = cast(Pairs, loaded)
        except (TypeError, ValueError):
            raise ValueError(
                f"data set '{name}' must return a Dataset or ((train inputs, train targets), (test inputs, test "
                f"targets)), got {type(loaded).__name__}"
            ) from None
        loaded = make(name, (train_inputs, train_targets), (test_inputs, test_targets))
    return with_constants(loaded, mean=mean, std=std)
