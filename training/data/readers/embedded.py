"""Real data that are part of this package or of scikit-learn: nothing to download."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from landscape import rng
from landscape.losses.batches import choose_stratified
from training.data import embedded
from training.data.formats.texts import build_vocabulary, encode_characters, encode_words
from training.data.readers.contents import Contents, Pair
from training.data.readers.leaf import WINDOW, make_windows_contents
from training.data.stores import Groups
from training.storage.npz import read_npz

FOLDER = Path(embedded.__file__).parent
DIGITS_TEST = 360  # a fifth of the 1797 digits
TEST_EVERY = 5  # a fifth of the speeches
SLICES_TESTED = 4  # a quarter of the slices
LINES_TESTED = 10  # a tenth of what a role says
TISSUES = ("background", "other", "grey matter", "white matter")


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


def read_speeches(vocabulary: int, length: int, fold: int = 0) -> Contents:
    """Read passages of State-of-the-Union addresses; the classes are ten presidents, the users their addresses.

    vocabulary: the most frequent words of the training passages that are known, with padding and the unknown word.
    length: words of a passage; longer ones are cut off.
    fold: which fifth is for testing, 0 to 4.

    Every fifth passage of a president is for testing.
    """
    rows = _read_rows("speeches.json.xz")
    names = tuple(sorted({name for name, _, _ in rows}))
    parts: list[tuple[list[str], list[int], list[str]]] = [([], [], []), ([], [], [])]
    for place, (name, year, passage) in enumerate(rows):
        texts, labels, users = parts[place % TEST_EVERY == TEST_EVERY - 1 - fold]
        texts.append(passage)
        labels.append(names.index(name))
        users.append(f"{name} {year}")
    known = build_vocabulary(parts[0][0], vocabulary)
    train, test = (
        (torch.from_numpy(encode_words(texts, known, length)), torch.tensor(labels)) for texts, labels, _ in parts
    )
    return Contents(train, test, len(names), names, users=Groups.of(parts[0][2]), vocabulary=vocabulary)


def read_plays(stride: int, fold: int = 0) -> Contents:
    """Read windows of 80 characters of what roles of Shakespeare say, and the character that follows; by role.

    stride: characters from one window to the next; LEAF has 1.
    fold: which tenth of a role is for testing, 0 to 9, counted from its end.

    Windows that would hold characters of both parts are left out.
    """
    parts: list[tuple[list[NDArray[np.uint8]], list[NDArray[np.int64]], list[str]]] = [([], [], []), ([], [], [])]
    for role, text in _read_rows("plays.json.xz"):
        codes = encode_characters(text)
        tenth = len(codes) // LINES_TESTED
        end = len(codes) - fold * tenth
        train, test = parts
        for part, spoken in ((train, codes[: end - tenth]), (train, codes[end:]), (test, codes[end - tenth : end])):
            if len(spoken) <= WINDOW:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(spoken, WINDOW + 1)[::stride]
            part[0].append(windows[:, :-1])
            part[1].append(windows[:, -1].astype(np.int64))
            part[2].extend([role] * len(windows))
    (spoken_train, users), (spoken_test, test_users) = (
        ((np.concatenate(inputs), np.concatenate(targets)), Groups.of(owners)) for inputs, targets, owners in parts
    )
    return make_windows_contents(spoken_train, spoken_test, users, test_users)


def read_brain(unseen: str = "", fold: int = 0) -> Contents:
    """Read slices of an average brain 1x64x64 with the tissue of every pixel; users are parts of an orientation.

    unseen: an orientation, axial, coronal or sagittal, that is left out of training; the test slices are then those
        of seen and of unseen orientations. Empty: none.
    fold: which quarter of the slices is for testing, 0 to 3.

    Every fourth slice is for testing.
    """
    arrays = read_npz(FOLDER / "brain.npz")
    images, maps = torch.from_numpy(arrays["images"])[:, None], torch.from_numpy(arrays["maps"])
    test = torch.arange(len(images)) % SLICES_TESTED == SLICES_TESTED - 1 - fold
    users, chosen = arrays["users"], test.numpy()
    hidden = np.asarray([str(user).split()[0] == unseen for user in users])  # "axial 1"
    domains = Groups.of(["unseen" if one else "seen" for one in hidden[chosen]]) if unseen else None
    train = ~test & torch.from_numpy(~hidden)
    return Contents(
        (images[train], maps[train]),
        (images[test], maps[test]),
        len(TISSUES),
        TISSUES,
        users=Groups.of(users[train.numpy()].tolist()),
        test_users=Groups.of(users[chosen].tolist()),
        test_domains=domains,
    )


def _read_rows(name: str) -> list[list[str]]:
    rows: list[list[str]] = json.loads(lzma.decompress((FOLDER / name).read_bytes()))
    return rows
