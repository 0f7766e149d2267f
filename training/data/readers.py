"""Read published image sets from torchvision's folders, without running code that a file contains.

CIFAR's batches are Python pickles, and a pickle can execute code. They are read by an unpickler that knows byte
strings, lists, dictionaries, numbers and one stand-in for arrays of bytes, and refuses every other name in the file.
MNIST's idx files (torchvision's reader) and SVHN's MATLAB files (matlab.py) hold numbers only.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from landscape import rng
from landscape.losses.batches import choose_stratified
from training.data.matlab import read_arrays

DIGITS_TEST = 360  # a fifth of the 1797 digits
Pair = tuple[Tensor, Tensor]  # images (N, C, H, W) uint8, labels (N,) int64

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


class _Bytes:
    """Stands in for numpy.ndarray in a pickle: takes unsigned bytes and a shape, and calls nothing."""

    __slots__ = ("array",)

    def __init__(self, *_: object) -> None:
        self.array = np.zeros(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _Kind) or kind.code != "u1" or fortran:
            raise pickle.UnpicklingError("it holds an array that is not of plain unsigned bytes")
        self.array = np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, np.uint8).reshape(shape)


class _Kind:
    """Stands in for numpy.dtype."""

    __slots__ = ("code",)

    def __init__(self, code: object, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass  # byte order and alignment, which single bytes do not have


class _Unpickler(pickle.Unpickler):
    # stand-ins, not NumPy's own: no code but the dozen lines above ever sees what the file says
    stand_ins = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _Bytes,
        ("numpy._core.multiarray", "_reconstruct"): _Bytes,  # its name since NumPy 2
        ("numpy", "ndarray"): _Bytes,
        ("numpy", "dtype"): _Kind,
    }

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in self.stand_ins:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which was refused and not run")
        return self.stand_ins[module, name]


def unpickle(path: Path) -> dict[str, Any]:
    """Read a dictionary of plain values and byte arrays from a pickle.

    path: of the file. ValueError if it is damaged, or asks for anything beyond such values.
    """
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="latin1").load()  # latin1: Python 2 wrote bytes as strings
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__}, not a dictionary")
        return {str(key): value.array if isinstance(value, _Bytes) else value for key, value in content.items()}
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can fail in nearly any way
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not one of CIFAR's batches: {reason}. Delete it and download it again") from error


def read_cifar(name: str, root: Path, download: bool) -> tuple[Pair, Pair]:
    """Read CIFAR-10 or CIFAR-100.

    name: cifar10 or cifar100.
    root: the folder that holds cifar-10-batches-py or cifar-100-python.
    download: whether to download missing files.
    Returns the pairs (images, labels) for training and for testing.
    """
    from training.models.torchvision_shim import datasets, utils  # here, for importing torchvision takes seconds

    kind = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
    folder = root / kind.base_folder
    parts = [[file for file, _ in files] for files in (kind.train_list, kind.test_list)]

    def fetch() -> None:
        utils.download_and_extract_archive(kind.url, str(root), filename=kind.filename, md5=kind.tgz_md5)

    require(name, folder, parts[0] + parts[1], fetch if download else None)
    train, test = (_join([_cifar_batch(folder / file) for file in files]) for files in parts)
    return train, test


def _cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    batch = unpickle(path)
    pixels, labels = batch.get("data"), batch.get("fine_labels", batch.get("labels"))
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list) or pixels.shape != (len(labels), 3072):
        raise ValueError(f"{path} is not one of CIFAR's batches: it needs 'data' (N, 3072) and N 'labels'")
    labels = _class_numbers(path, labels)
    if "fine_labels" in batch:
        coarse = _class_numbers(path, batch.get("coarse_labels", []))
        if coarse.shape != labels.shape or (np.asarray(COARSE)[labels] != coarse).any():
            raise ValueError(f"{path}: the coarse labels are not CIFAR-100's superclasses of the fine labels")
    return pixels.reshape(-1, 3, 32, 32), labels


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


def read_digits() -> tuple[Pair, Pair]:
    """Read the digits that ship with scikit-learn, grey levels 0..16 spread over 0..255.

    Returns the pairs (images, labels) for training and for testing, a fixed stratified split.
    """
    from sklearn.datasets import load_digits

    source = load_digits()
    images = torch.from_numpy(np.rint(source.images * (255 / 16)).astype(np.uint8))[:, None]
    labels = torch.from_numpy(source.target.astype(np.int64))
    test = torch.zeros(len(labels), dtype=torch.bool)
    test[choose_stratified(labels, len(labels), DIGITS_TEST, rng.numpy_generator(0, "digits", "test"))] = True
    return (images[~test], labels[~test]), (images[test], labels[test])


def require(name: str, folder: Path, files: Sequence[str], fetch: Callable[[], None] | None) -> None:
    """Make sure that all files are there, or raise ValueError that says how to get them.

    name: of the data set, for messages.
    folder: where the files should be.
    files: their names.
    fetch: downloads them; None if that was not asked for.
    """

    def list_missing() -> list[str]:
        return [file for file in files if not (folder / file).is_file()]

    if list_missing() and fetch is not None:
        try:
            fetch()
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{name}: the download into {folder} failed ({error}). Is there a network?") from error
    if missing := list_missing():
        raise ValueError(
            f"{name}: no {', '.join(missing)} in {folder}. Add --download (download=True) to fetch the data, "
            "or name the folder that holds it: --data-root DIR (root=..., or the variable LANDSCAPE_DATA)"
        )
