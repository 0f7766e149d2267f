"""FEMNIST and Shakespeare as LEAF's scripts write them: JSON files with the examples of every user."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.formats.files import ELSEWHERE
from training.data.formats.splits import list_json, read_json
from training.data.formats.texts import CHARACTERS, encode_characters
from training.data.readers.contents import Contents
from training.data.stores import Groups

FEMNIST_CLASSES = (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase)
WINDOW = 80  # characters before the one that is predicted
SIDE = 28  # height and width of FEMNIST's images

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]  # inputs and targets
Convert = Callable[[str, Sequence[Any], Sequence[Any]], Arrays]


def read_femnist(root: Path) -> Contents:
    """Read FEMNIST: handwritten digits and letters 1x28x28, by writer.

    root: the folder that holds femnist/data/train and femnist/data/test.

    LEAF writes pixels as shares of 255; they become bytes again.
    """
    train, test, users, test_users = _read_parts("femnist", root, _convert_drawings)
    shape = (-1, 1, SIDE, SIDE)
    return Contents(
        (torch.from_numpy(train[0].reshape(shape)), torch.from_numpy(train[1])),
        (torch.from_numpy(test[0].reshape(shape)), torch.from_numpy(test[1])),
        len(FEMNIST_CLASSES),
        FEMNIST_CLASSES,
        users=users,
        test_users=test_users,
    )


def read_shakespeare(root: Path) -> Contents:
    """Read Shakespeare: 80 characters and the one that follows, by role.

    root: the folder that holds shakespeare/data/train and shakespeare/data/test.
    """
    train, test, users, test_users = _read_parts("shakespeare", root, _convert_windows)
    return make_windows_contents(train, test, users, test_users)


def make_windows_contents(train: Arrays, test: Arrays, users: Groups, test_users: Groups | None) -> Contents:
    """Put windows of characters together; a character takes one byte in memory.

    train, test: windows (N, 80), and the characters that follow.
    users, test_users: whose they are.
    """
    pairs = [
        (torch.from_numpy(np.ascontiguousarray(inputs.reshape(-1, WINDOW))), torch.from_numpy(targets))
        for inputs, targets in (train, test)
    ]
    return Contents(
        pairs[0],
        pairs[1],
        len(CHARACTERS),
        tuple(CHARACTERS),
        users=users,
        test_users=test_users,
        vocabulary=len(CHARACTERS),
    )


def _read_parts(name: str, root: Path, convert: Convert) -> tuple[Arrays, Arrays, Groups, Groups | None]:
    """Read both parts; the second groups are None where people are tested who did not train (LEAF's -t user)."""
    folder = root / name / "data"
    missing = [part for part in ("train", "test") if not (folder / part).is_dir()]
    if missing:
        raise ValueError(
            f"{name}: no folder {' or '.join(missing)} in {folder}. Make it with LEAF (github.com/TalwalkarLab/leaf, "
            f"data/{name}: ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample), or {ELSEWHERE}"
        )
    (train, users), (test, test_users) = (_read_part(folder / part, convert) for part in ("train", "test"))
    groups, test_groups = Groups.of(users), Groups.of(test_users)
    return train, test, groups, test_groups if set(test_groups.names) <= set(groups.names) else None


def _read_part(folder: Path, convert: Convert) -> tuple[Arrays, list[str]]:
    """Read the examples of all files of a folder, one file at a time, and the user of each example."""
    inputs, targets, users, known = [], [], [], set()
    for path in list_json(folder):
        for user, (x, y) in read_json(path).items():
            if user in known:
                raise ValueError(f"{path}: the user {user!r} is in another file of this folder as well")
            known.add(user)
            if x:
                own = convert(f"{path}: user {user!r}", x, y)
                inputs.append(own[0])
                targets.append(own[1])
                users += [user] * len(y)
    if not users:
        raise ValueError(f"{folder}: no user has any examples")
    return (np.concatenate(inputs), np.concatenate(targets)), users


def _convert_drawings(owner: str, x: Sequence[Any], y: Sequence[Any]) -> Arrays:
    """Images as bytes (N, 784), labels 0..61."""
    try:
        shares = np.asarray(x, np.float64)
        labels = np.asarray(y)
    except (ValueError, TypeError):
        raise ValueError(f"{owner}: x must hold lists of {SIDE * SIDE} numbers") from None
    if shares.shape != (len(y), SIDE * SIDE) or not (shares.min() >= 0 and shares.max() <= 1):
        raise ValueError(f"{owner}: x must hold lists of {SIDE * SIDE} numbers from 0 to 1")
    return np.rint(shares * 255).astype(np.uint8), _check_labels(owner, labels, len(FEMNIST_CLASSES))


def _check_labels(owner: str, labels: NDArray[Any], classes: int) -> NDArray[np.int64]:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"{owner}: y must hold whole numbers from 0 to {classes - 1}")
    return labels.astype(np.int64)


def _convert_windows(owner: str, x: Sequence[Any], y: Sequence[Any]) -> Arrays:
    """Windows of characters (N, 80) and the characters that follow (N,)."""
    if not all(isinstance(text, str) and len(text) == WINDOW for text in x):
        raise ValueError(f"{owner}: x must hold texts of {WINDOW} characters")
    if not all(isinstance(text, str) and len(text) == 1 for text in y):
        raise ValueError(f"{owner}: y must hold single characters")
    return encode_characters("".join(x)), encode_characters("".join(y)).astype(np.int64)
