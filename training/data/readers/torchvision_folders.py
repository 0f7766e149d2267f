"""CIFAR, MNIST, Fashion-MNIST and SVHN in torchvision's folders, read without running code that a file contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.data.formats.files import require
from training.data.formats.matlab import read_arrays
from training.data.formats.pickles import unpickle
from training.data.readers.contents import Contents, Pair

# CIFAR-100's superclass (0..19) of each fine class, both in the files' alphabetical order.
# fmt: off
COARSE: tuple[int, ...] = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11,
    6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5,
    5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17,
    10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13,
    16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)
# fmt: on


def read_cifar(name: str, root: Path, download: bool) -> Contents:
    """Read CIFAR-10 or CIFAR-100.

    name: cifar10 or cifar100.
    root: the folder that holds cifar-10-batches-py or cifar-100-python.
    download: whether to download missing files.

    The keys of the training images are the names that FedSAM's and FedGloSS's splits cite: of CIFAR-10
    img_<number>_label_<class>.png, of CIFAR-100 the names in its file.
    """
    from training.models.torchvision_shim import datasets, utils  # here, for importing torchvision takes seconds

    kind = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
    folder = root / kind.base_folder
    parts = [[file for file, _ in files] for files in (kind.train_list, kind.test_list)]

    def fetch() -> None:
        utils.download_and_extract_archive(kind.url, str(root), filename=kind.filename, md5=kind.tgz_md5)

    require(name, folder, parts[0] + parts[1], fetch if download else None)
    train, test = ([_cifar_batch(folder / file) for file in files] for files in parts)
    keys: list[str] | None = [key for batch in train for key in batch.keys]
    pairs = [_join([(batch.pixels, batch.labels) for batch in batches]) for batches in (train, test)]
    if name == "cifar10":
        keys = [f"img_{number}_label_{label}.png" for number, label in enumerate(pairs[0][1].tolist())]
    return Contents(pairs[0], pairs[1], 10 if name == "cifar10" else 100, keys=tuple(keys) if keys else None)


@dataclass(frozen=True)
class _Batch:
    """One file: pixels (N, 3, 32, 32), labels (N,), and the names of the images where it has them."""

    pixels: np.ndarray
    labels: np.ndarray
    keys: list[str]


def _cifar_batch(path: Path) -> _Batch:
    batch = unpickle(path)
    pixels, labels = batch.get("data"), batch.get("fine_labels", batch.get("labels"))
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list) or pixels.shape != (len(labels), 3072):
        raise ValueError(f"{path} is not one of CIFAR's batches: it needs 'data' (N, 3072) and N 'labels'")
    labels = _class_numbers(path, labels)
    if "fine_labels" in batch:
        coarse = _class_numbers(path, batch.get("coarse_labels", []))
        if coarse.shape != labels.shape or (np.asarray(COARSE)[labels] != coarse).any():
            raise ValueError(f"{path}: the coarse labels are not CIFAR-100's superclasses of the fine labels")
    names = batch.get("filenames")
    known = isinstance(names, list) and len(names) == len(labels) and all(isinstance(one, str) for one in names)
    return _Batch(pixels.reshape(-1, 3, 32, 32), labels, list(names or ()) if known else [])


def _class_numbers(path: Path, labels: Any) -> np.ndarray:
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 100 for label in labels):
        raise ValueError(f"{path} is not one of CIFAR's batches: its labels must be whole numbers from 0 to 99")
    return np.asarray(labels, dtype=np.int64)


def _join(batches: Sequence[tuple[np.ndarray, np.ndarray]]) -> Pair:
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return torch.from_numpy(images), torch.from_numpy(labels)


def read_mnist(name: str, root: Path, download: bool) -> tuple[Pair, Pair]:
    """Read MNIST or Fashion-MNIST.

    name: mnist or fashion_mnist.
    root: the folder that holds MNIST/raw or FashionMNIST/raw.
    download: whether to download missing files.
    Returns the pairs (images, labels) for training and for testing.
    """
    from training.models.torchvision_shim import datasets, mnist, utils

    kind = datasets.MNIST if name == "mnist" else datasets.FashionMNIST
    folder = root / kind.__name__ / "raw"
    archives = [(file, md5) for file, md5 in kind.resources]
    files = [file.removesuffix(".gz") for file, _ in archives]

    def fetch() -> None:
        for file, md5 in archives:
            utils.download_and_extract_archive(kind.mirrors[0] + file, str(folder), filename=file, md5=md5)

    require(name, folder, files, fetch if download else None)

    def read(images: str, labels: str) -> Pair:
        try:
            pair = mnist.read_image_file(str(folder / images)), mnist.read_label_file(str(folder / labels))
        except (AssertionError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{folder}: {images} or {labels} is not an idx file. Download it again") from error
        return pair[0][:, None], pair[1]

    return read(files[0], files[1]), read(files[2], files[3])


def read_svhn(name: str, root: Path, download: bool) -> tuple[Pair, Pair]:
    """Read SVHN's cropped digits; the label 10 in its files means the digit 0.

    name: of the data set, for messages.
    root: the folder of train_32x32.mat and test_32x32.mat.
    download: whether to download missing files.
    Returns the pairs (images, labels) for training and for testing.
    """
    from training.models.torchvision_shim import datasets, utils

    sources = [datasets.SVHN.split_list[part] for part in ("train", "test")]

    def fetch() -> None:
        for url, file, md5 in sources:
            utils.download_url(url, str(root), file, md5)

    require(name, root, [file for _, file, _ in sources], fetch if download else None)
    pairs = []
    for _, file, _ in sources:
        try:
            content = read_arrays(root / file)
            images = content["X"].transpose(3, 2, 0, 1).copy(order="C")
            labels = content["y"].reshape(-1).astype(np.int64) % 10
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{root / file} is not an SVHN file ({error}). Download it again") from error
        pairs.append((torch.from_numpy(images), torch.from_numpy(labels)))
    return pairs[0], pairs[1]
