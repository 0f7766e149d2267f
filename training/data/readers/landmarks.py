"""Landmarks-User-160k and its small sister gld23k: photographs of the Google Landmarks data set, by their authors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from training.data.formats.files import ELSEWHERE, Published, fetch, list_some, obtain, verify
from training.data.formats.image_files import Decoding, ImageFiles
from training.data.formats.splits import read_csv, read_numbers
from training.data.readers.contents import Contents
from training.data.stores import Groups

HOST = "https://storage.googleapis.com"
TEST_CROP = 224 / 256  # share of the shorter side that is tested on, as usual for ImageNet


@dataclass(frozen=True)
class Split:
    """Where the tables of a split are.

    folder: of the tables, under the folder of the data.
    train, test: the tables.
    """

    folder: str
    train: Published
    test: Published


ARCHIVE = Published(
    "landmarks-user-160k.zip",
    f"{HOST}/gresearch/federated-vision-datasets/landmarks-user-160k.zip",
    "53c36bd7d5fc12f927af2820b7e4a57c",
)
SPLITS = {
    "landmarks": Split("landmarks-user-160k", Published("federated_train.csv"), Published("test.csv")),
    "gld23k": Split(
        "gld23k",
        Published(
            "mini_gld_train_split.csv",
            f"{HOST}/tff-datasets-public/mini_gld_train_split.csv",
            "9fd62cf79a67046fdd673d3a0ac52841",
        ),
        Published(
            "mini_gld_test.csv",
            f"{HOST}/tff-datasets-public/mini_gld_test.csv",
            "298e9d19d66357236f66fe8e22920933",
        ),
    ),
}


def read_landmarks(
    name: str, root: Path, download: bool, check: bool, *, size: int, images: str, skip_missing: bool, cache: int
) -> Contents:
    """Read a split of the Google Landmarks data set.

    name: landmarks or gld23k.
    root: the folder that holds landmarks-user-160k or gld23k.
    download: whether to download the tables; the images (500 archives of 1 GB) have to be fetched by hand.
    check: whether checksums are compared.
    size: height and width of an image. Training images are the square in the middle of the photograph, test images
        that of 224/256 of its shorter side; both are resized (bicubic).
    images: folder of the images, relative to root; empty: the folder images or train beside the tables.
    skip_missing: leave out images whose files are missing, with a warning; else they are an error.
    cache: bytes of decoded images that stay in memory.

    Files are <id>.jpg, or <a>/<b>/<c>/<id>.jpg with the first three letters of the id, as in the published archives.
    """
    split = SPLITS[name]
    folder = root / split.folder
    _obtain_tables(name, folder, split, download, check)
    train_path, test_path = folder / split.train.file, folder / split.test.file
    users, train_ids, train_cells = read_csv(train_path, ("user_id", "image_id", "class"))
    test_ids, test_cells = read_csv(test_path, ("image_id", "class"))
    labels = read_numbers(train_path, "class", train_cells)
    test_labels = read_numbers(test_path, "class", test_cells)
    classes = max(labels) + 1
    if max(test_labels) >= classes:
        raise ValueError(f"{test_path}: class {max(test_labels)} does not occur in {train_path.name}")
    place = _find_images(name, folder, root / images if images else None)
    train_kept = _locate(place, train_ids, skip_missing)
    test_kept = _locate(place, test_ids, skip_missing)
    kept, test_rows = list(train_kept), list(test_kept)
    return Contents(
        (
            ImageFiles(place, list(train_kept.values()), Decoding(size, size, "crop"), cache),
            torch.tensor([labels[row] for row in kept]),
        ),
        (
            ImageFiles(place, list(test_kept.values()), Decoding(size, size, "crop", TEST_CROP), cache),
            torch.tensor([test_labels[row] for row in test_rows]),
        ),
        classes,
        users=Groups.of([users[row] for row in kept]),
        keys=tuple(train_ids[row] for row in kept),
    )


def _obtain_tables(name: str, folder: Path, split: Split, download: bool, check: bool) -> None:
    """Make sure that the tables are there and whole."""
    files = [split.train.file, split.test.file]
    if name == "landmarks":
        obtain(name, folder, files, ARCHIVE, download=download, check=check)
        return
    for published in (split.train, split.test):
        path = folder / published.file
        if not path.is_file() and download:
            folder.mkdir(parents=True, exist_ok=True)
            fetch(name, path, published)
        if not path.is_file():
            raise ValueError(f"{name}: no {path}. Get {published.describe()}, add --download, or {ELSEWHERE}")
        if check:
            verify(path, published)


def _find_images(name: str, folder: Path, given: Path | None) -> Path:
    """Find the folder of the images."""
    candidates = [given] if given else [folder / "images", folder / "train"]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise ValueError(
        f"{name}: no folder {' or '.join(map(str, candidates))}. Get the training images of the Google Landmarks data "
        "set v2 (github.com/cvdfoundation/google-landmark) and unpack them there, or write data.images = FOLDER"
    )


def _locate(place: Path, ids: list[str], skip_missing: bool) -> dict[int, str]:
    """Find the file of every image: row of the table -> name of the file, without the missing ones."""
    found, missing = {}, []
    for row, image in enumerate(ids):
        nested = "/".join([*image[:3], f"{image}.jpg"])
        name = next((one for one in (nested, f"{image}.jpg") if (place / one).is_file()), None)
        if name is None:
            missing.append(f"{image}.jpg")
        else:
            found[row] = name
    about = f"{place} lacks {len(missing):,} of the {len(ids):,} images of the split: {list_some(missing)}"
    if missing and (not skip_missing or not found):
        raise ValueError(f"{about}. Fetch them, or write data.skip_missing = true to leave them out")
    if missing:
        warnings.warn(f"{about}; they are left out", stacklevel=3)
    return found
