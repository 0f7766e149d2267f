"""Tiny-ImageNet and CINIC-10: folders of small images, decoded when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from training.data.formats.files import Published, list_some, obtain, read_text
from training.data.formats.image_files import Decoding, ImageFiles
from training.data.readers.contents import Contents

TINY = Published(
    "tiny-imagenet-200.zip",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "90528d7ca1a48142e341f4ef8d21d0de",
    248_100_043,
)
CINIC = Published(
    "CINIC-10.tar.gz",
    "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
    "6ee4d0c996905fe93221de577967a372",
    687_544_992,
)
CINIC_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_tiny_imagenet(root: Path, download: bool, check: bool, cache: int) -> Contents:
    """Read Tiny-ImageNet-200: 100,000 training images, and the 10,000 validation images for testing.

    root: the folder that holds tiny-imagenet-200, or its archive.
    download: whether to download it.
    check: whether the archive's checksum is compared.
    cache: bytes of decoded images that stay in memory.

    Classes are numbered in the order of their WordNet numbers, not in that of wnids.txt. test/ has no labels.
    """
    folder = root / "tiny-imagenet-200"
    needed = ["wnids.txt", "train", "val/images", "val/val_annotations.txt"]
    obtain("tiny_imagenet", folder, needed, TINY, download=download, check=check)
    numbers = sorted(read_text(folder / "wnids.txt").split())
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"{folder / 'wnids.txt'} must list every class once, one on a line; it has {len(numbers)}")
    names, labels = [], []
    for label, number in enumerate(numbers):
        found = list_images(folder, f"train/{number}/images", ".JPEG")
        names += found
        labels += [label] * len(found)
    test_names, test_labels = _read_annotations(folder / "val" / "val_annotations.txt", numbers)
    decoding = Decoding(64, 64)
    return Contents(
        (ImageFiles(folder, names, decoding, cache), torch.tensor(labels)),
        (ImageFiles(folder, [f"val/images/{name}" for name in test_names], decoding, cache), test_labels),
        len(numbers),
        _name_classes(folder / "words.txt", numbers),
        keys=tuple(names),
    )


def _read_annotations(path: Path, numbers: Sequence[str]) -> tuple[list[str], Tensor]:
    """Read file names and labels of the validation images."""
    place = {number: label for label, number in enumerate(numbers)}
    names, labels = [], []
    for line, text in enumerate(read_text(path).splitlines(), start=1):
        cells = text.split("\t")
        if len(cells) != 6:
            raise ValueError(f"{path}, line {line}: {len(cells)} cells, expected file, class and four corners")
        if cells[1] not in place:
            raise ValueError(f"{path}, line {line}: class {cells[1][:40]!r} is not in wnids.txt")
        names.append(cells[0])
        labels.append(place[cells[1]])
    if not names:
        raise ValueError(f"{path} is empty; expected a line for every validation image")
    return names, torch.tensor(labels)


def _name_classes(path: Path, numbers: Sequence[str]) -> tuple[str, ...] | None:
    """The first of the names that words.txt gives every class; None where the file is missing."""
    if not path.is_file():
        return None
    known = dict(line.split("\t", 1) for line in read_text(path).splitlines() if "\t" in line)
    return tuple(known.get(number, number).partition(",")[0].strip() for number in numbers)


def read_cinic10(root: Path, download: bool, check: bool, cache: int, validation: bool) -> Contents:
    """Read CINIC-10: 90,000 images each for training, validation and testing.

    root: the folder that holds CINIC-10, or its archive.
    download: whether to download it.
    check: whether the archive's checksum is compared.
    cache: bytes of decoded images that stay in memory.
    validation: whether the validation images belong to the training set; else they are not used.
    """
    folder = root / "CINIC-10"
    parts = ["train", "valid"] if validation else ["train"]
    obtain("cinic10", folder, [*parts, "test"], CINIC, download=download, check=check)
    sets = []
    for split in (parts, ["test"]):
        names, labels = [], []
        for part in split:
            unknown = sorted({one.name for one in (folder / part).iterdir() if one.is_dir()} - set(CINIC_CLASSES))
            if unknown:
                raise ValueError(f"{folder / part} has folders that are no classes of CINIC-10: {list_some(unknown)}")
            for label, name in enumerate(CINIC_CLASSES):
                found = list_images(folder, f"{part}/{name}", ".png")
                names += found
                labels += [label] * len(found)
        sets.append((ImageFiles(folder, names, Decoding(32, 32), cache), torch.tensor(labels)))
    train, test = sets
    return Contents(train, test, 10, CINIC_CLASSES, keys=tuple(train[0].names))


def list_images(root: Path, folder: str, ending: str) -> list[str]:
    """List the image files of a folder in the order of their names, or raise ValueError where there are none.

    root, folder: where they are; the names that are returned are relative to root.
    ending: of their names.
    """
    place = root / folder
    names = sorted(one.name for one in place.iterdir() if one.name.endswith(ending)) if place.is_dir() else []
    if not names:
        raise ValueError(f"no images *{ending} in {place}")
    return [f"{folder}/{name}" for name in names]
