"""Data of one's own as a network sees them: from a file of arrays, from a function, or a data set by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from landscape.errors import finite
from training.data import datasets
from training.data.dataset import Dataset, normalise
from training.plugins import call, import_function
from training.settings import MOST_CLASSES
from training.storage.npz import read_npz

Pair = tuple[Tensor, Tensor]  # inputs, labels
SPLITS = ("train", "test")
NPZ = ("x_train", "y_train", "x_test", "y_test")


def read_data(data: str, root: Path | None, dtype: torch.dtype) -> dict[str, Pair]:
    """Inputs and labels by split.

    data: a data set's name, 'module:function' that returns ((train inputs, labels), (test inputs, labels)) or one
        pair, which then is the training data, or an .npz with x_train, y_train and x_test, y_test.
    root: folder of the data; None: the usual one.
    dtype: what the images of a data set are normalised to.
    """
    if data.endswith(".npz"):
        found: Any = _read_pairs(Path(data))
    elif ":" in data:
        found = call("data", data, import_function("data", data), {}, offered={"root": root})
    else:
        found = datasets.load(data, root=root)
    pairs = _list_pairs(data, found, dtype)
    return {split: _checked(f"{data}: {split}", pair, dtype) for split, pair in zip(SPLITS, pairs, strict=False)}


def _read_pairs(path: Path) -> list[Any]:
    try:
        arrays = read_npz(path)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    if not all(name in arrays for name in NPZ[:2]) or ("x_test" in arrays) != ("y_test" in arrays):
        raise ValueError(f"{path}: expected {', '.join(NPZ)} (the last two may be left out), got {', '.join(arrays)}")
    pairs: list[Any] = [(arrays[f"x_{split}"], arrays[f"y_{split}"]) for split in SPLITS if f"x_{split}" in arrays]
    return pairs if len(pairs) == 2 else pairs[0]


def _list_pairs(name: str, found: Any, dtype: torch.dtype) -> list[tuple[Any, Any]]:
    """Inputs and labels of the training data, then of the test data if there are any."""
    if isinstance(found, Dataset):
        pairs = [_read_split(found, "train", len(found.train_inputs), dtype)]
        return pairs + ([_read_split(found, "test", len(found.test_inputs), dtype)] if len(found.test_inputs) else [])
    if isinstance(found, (tuple, list)) and len(found) == 2:
        if all(isinstance(part, (Tensor, np.ndarray)) for part in found):
            return [(found[0], found[1])]
        if all(isinstance(part, (tuple, list)) and len(part) == 2 for part in found):
            return [(part[0], part[1]) for part in found]
    raise ValueError(
        f"data '{name}' must return ((train inputs, labels), (test inputs, labels)) or one pair of tensors, "
        f"got {type(found).__name__}"
    )


def _read_split(dataset: Dataset, split: Literal["train", "test"], count: int, dtype: torch.dtype) -> Pair:
    """All examples of a split as the network sees them, and their targets."""
    inputs, targets = dataset.read(split, torch.arange(count))
    return normalise(inputs, dataset, dtype), targets


def _checked(what: str, pair: tuple[Any, Any], dtype: torch.dtype) -> Pair:
    """Tensors on the CPU: inputs as the network sees them, labels as whole numbers from 0."""
    inputs, labels = (_tensor(f"{what} {name}", one) for name, one in zip(("inputs", "labels"), pair, strict=True))
    if inputs.dtype == torch.uint8:
        raise ValueError(f"{what} inputs are bytes; give them as the network sees them, normalised as in training")
    if inputs.ndim == 0 or inputs.is_complex() or inputs.dtype == torch.bool:
        raise ValueError(f"{what} inputs must be numbers, the examples on the first axis; got {_described(inputs)}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool or labels.ndim != 1:
        raise ValueError(f"{what} labels must be whole numbers, one per example; got {_described(labels)}")
    if len(inputs) != len(labels) or len(labels) == 0:
        raise ValueError(f"{what} needs as many labels as inputs, and some; got {len(labels)} and {len(inputs)}")
    if int(labels.min()) < 0:
        raise ValueError(f"{what} labels must start at 0, got {int(labels.min())}")
    if int(labels.max()) >= MOST_CLASSES:
        raise ValueError(
            f"{what} labels must be class numbers from 0 on, below {MOST_CLASSES}; got {int(labels.max())}. "
            "Number the classes: numpy.unique(labels, return_inverse=True)[1]"
        )
    if inputs.is_floating_point():
        finite(f"{what} inputs", inputs)
    return inputs.detach().cpu().to(dtype if inputs.is_floating_point() else torch.int64), labels.cpu().long()


def _tensor(what: str, value: Any) -> Tensor:
    """A tensor from a tensor or from any array of numbers."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{what} must be a tensor or an array, got {type(value).__name__}")
    kinds = {"f": np.float64, "i": np.int64, "u": np.int64, "c": np.complex128, "b": np.bool_}
    if value.dtype.kind not in kinds:
        raise ValueError(f"{what} must be numbers, got {value.dtype} {value.shape}")
    if value.dtype.kind == "u" and value.size and int(value.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{what} must be numbers below 2**63, got {int(value.max())}")
    known = value.dtype.newbyteorder("=") in (np.float16, np.float32, np.float64, np.uint8, np.int64)
    wanted = value.dtype.newbyteorder("=") if known else kinds[value.dtype.kind]
    return torch.from_numpy(value.astype(wanted))  # a copy, in the order of bytes that torch takes


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
