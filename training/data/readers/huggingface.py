"""Data of Hugging Face's `datasets`, where that package is installed, and partitions of Flower Datasets.

Nothing here imports either package by name: a split is anything with a length, `column_names` and items by number, and
a partitioner anything with `num_partitions` and `load_partition`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from training.data.formats.texts import build_vocabulary, encode_words
from training.data.readers.contents import Contents
from training.data.stores import Groups


class Rows(Protocol):
    """A split: rows of columns with names."""

    @property
    def column_names(self) -> Sequence[str]:
        """The names of the columns."""

    def __len__(self) -> int:
        """The number of rows."""

    def __getitem__(self, place: int) -> Mapping[str, Any]:
        """One row."""


class Partitions(Protocol):
    """What Flower Datasets calls a partitioner."""

    @property
    def num_partitions(self) -> int:
        """How many clients there are."""

    def load_partition(self, partition_id: int) -> Rows:
        """The rows of one client."""


def read_huggingface(
    root: Path,
    path: str,
    *,
    input: str,
    label: str,
    user: str,
    train: str,
    test: str,
    vocabulary: int,
    length: int,
) -> Contents:
    """Read a data set with the package `datasets`.

    root: the folder of the data.
    path: a folder under root, as save_to_disk writes it or with parquet files named after the splits, or a name on the
        hub.
    input: column of the images or texts.
    label: column of the classes.
    user: column of the users; empty where there are none.
    train, test: names of the splits; test may be empty.
    vocabulary, length: of texts.
    """
    splits = _open(root, path)
    missing = [name for name in (train, test) if name and name not in splits]
    if missing:
        raise ValueError(f"huggingface: '{path}' has no split {' or '.join(missing)}; it has {', '.join(splits)}")
    return make_contents(
        splits[train],
        splits[test] if test else None,
        input=input,
        label=label,
        user=user,
        vocabulary=vocabulary,
        length=length,
    )


def _open(root: Path, path: str) -> Mapping[str, Rows]:
    """Open the splits by name."""
    try:
        package = importlib.import_module("datasets")
    except ImportError:
        raise ValueError("huggingface needs the package datasets: pip install datasets") from None
    folder = root / path
    try:
        if not folder.is_dir():
            return dict(package.load_dataset(path))
        if list(folder.glob("*.parquet")):
            files: dict[str, list[str]] = {}
            for file in sorted(folder.glob("*.parquet")):  # train-00000-of-00002.parquet, test.parquet
                files.setdefault(file.stem.partition("-")[0], []).append(str(file))
            return dict(package.load_dataset("parquet", data_files=files))
        found = package.load_from_disk(str(folder))
        return dict(found) if isinstance(found, Mapping) else {"train": found}
    except Exception as error:  # the package, pyarrow and the network fail in many ways
        reason = " ".join(str(error).split())[:200]
        there = f"'{path}' cannot be opened"
        if not folder.is_dir():
            there = f"there is no folder {folder}, and the package cannot open that name"
        raise ValueError(f"huggingface: {there} ({type(error).__name__}: {reason})") from None


def read_partitions(
    partitions: Partitions,
    test: Rows | None = None,
    *,
    input: str = "image",
    label: str = "label",
    vocabulary: int = 30_000,
    length: int = 128,
) -> Contents:
    """Read the partitions of Flower Datasets; partition i becomes the user number i, for the partition `natural`.

    partitions: a partitioner that has its data, for example `FederatedDataset(...).partitioners["train"]`.
    test: rows for testing.
    input: column of the images or texts.
    label: column of the classes.
    vocabulary, length: of texts.
    """
    total = partitions.num_partitions
    parts = [partitions.load_partition(number) for number in range(total)]
    width = len(str(total - 1))
    users = [f"{number:0{width}d}" for number, part in enumerate(parts) for _ in range(len(part))]
    rows = [part[place] for part in parts for place in range(len(part))]
    columns = parts[0].column_names if parts else ()
    return make_contents(
        _Listed(rows, columns), test, input=input, label=label, vocabulary=vocabulary, length=length, users=users
    )


class _Listed(list[Mapping[str, Any]]):
    """Rows in a list."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], column_names: Sequence[str]) -> None:
        super().__init__(rows)
        self.column_names = column_names


def make_contents(
    train: Rows,
    test: Rows | None,
    *,
    input: str,
    label: str,
    user: str = "",
    vocabulary: int,
    length: int,
    users: Sequence[str] | None = None,
) -> Contents:
    """Make contents of rows: images of one size, or texts.

    train, test: rows.
    input, label, user: columns.
    vocabulary, length: of texts.
    users: who each training row belongs to, if no column says so.
    """
    for rows in (train, test) if test is not None else (train,):
        if absent := [name for name in (input, label) if name not in rows.column_names]:
            raise ValueError(f"huggingface: no column {' or '.join(absent)}; there are {', '.join(rows.column_names)}")
    if user and user not in train.column_names:
        raise ValueError(f"huggingface: no column {user}; there are {', '.join(train.column_names)}")
    parts = [[rows[place] for place in range(len(rows))] for rows in (train, test if test is not None else ())]
    if not parts[0]:
        raise ValueError("huggingface: there are no training rows")
    owners = [str(row[user]) for row in parts[0]] if user else users
    names, labels = _number_classes([[row[label] for row in rows] for rows in parts], train, label)
    texts = isinstance(parts[0][0][input], str)
    inputs = _encode_texts(parts, input, vocabulary, length) if texts else _stack_images(parts, input)
    pairs = [(torch.from_numpy(one), torch.from_numpy(own)) for one, own in zip(inputs, labels, strict=True)]
    return Contents(
        pairs[0],
        pairs[1],
        len(names),
        tuple(names),
        users=None if owners is None else Groups.of(owners),
        vocabulary=vocabulary if texts else None,
    )


def _number_classes(
    parts: Sequence[Sequence[Any]], train: Rows, label: str
) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Number the classes: as the data's ClassLabel does, by their own numbers, or in the order of their names."""
    known = getattr(getattr(train, "features", {}).get(label), "names", None)
    values = [value for part in parts for value in part]
    if all(type(value) is int for value in values):
        if min(values) < 0 or (known and max(values) >= len(known)):
            raise ValueError(f"huggingface: '{label}' must hold classes from 0 on, got {min(values)} to {max(values)}")
        return list(known or map(str, range(max(values) + 1))), [np.asarray(part, np.int64) for part in parts]
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"huggingface: '{label}' must hold whole numbers or names of classes")
    names = sorted(set(parts[0]))
    if unknown := sorted(set(values) - set(names)):
        raise ValueError(f"huggingface: class {unknown[0]!r} has test examples only")
    place = {name: number for number, name in enumerate(names)}
    return names, [np.asarray([place[value] for value in part], np.int64) for part in parts]


def _encode_texts(
    parts: Sequence[Sequence[Mapping[str, Any]]], column: str, vocabulary: int, length: int
) -> list[NDArray[Any]]:
    texts = [[str(row[column]) for row in rows] for rows in parts]
    known = build_vocabulary(texts[0], vocabulary)
    return [encode_words(part, known, length) for part in texts]


def _stack_images(parts: Sequence[Sequence[Mapping[str, Any]]], column: str) -> list[NDArray[Any]]:
    """Images (N, C, H, W) uint8; all must have the same size and number of channels."""
    arrays = [[_to_array(row[column], column) for row in rows] for rows in parts]
    sizes = sorted({one.shape for part in arrays for one in part})
    if len(sizes) > 1:
        shown = ", ".join("x".join(map(str, size)) for size in sizes[:3])
        raise ValueError(f"huggingface: images have several sizes ({shown}, ...): bring them to one size first")
    return [np.stack(part) if part else np.zeros((0, *sizes[0]), np.uint8) for part in arrays]


def _to_array(image: Any, column: str) -> NDArray[np.uint8]:
    if isinstance(image, Image.Image):
        image = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3)):
        raise ValueError(
            f"huggingface: column '{column}' must hold texts, or images of bytes (H, W) or (H, W, 3); got "
            f"{array.dtype} of shape {array.shape}"
        )
    return np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))
