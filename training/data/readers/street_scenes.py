"""Cityscapes and IDDA: street scenes with a class for every pixel, and the federated splits of FedDrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data.formats.files import ELSEWHERE
from training.data.formats.image_files import IGNORED, Decoding, ImageFiles, LabelMaps
from training.data.formats.splits import read_json_folder
from training.data.readers.contents import Contents
from training.data.stores import Groups

CLASSES = (
    "road",
    "sidewalk",
    "building",
    "wall",
    "fence",
    "pole",
    "traffic light",
    "traffic sign",
    "vegetation",
    "terrain",
    "sky",
    "person",
    "rider",
    "car",
    "truck",
    "bus",
    "train",
    "motorcycle",
    "bicycle",
)
# Cityscapes' numbers of these classes; all other numbers are not evaluated
CITYSCAPES_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
CITYSCAPES_MAP = {**dict.fromkeys(range(34), IGNORED), **{number: k for k, number in enumerate(CITYSCAPES_IDS)}}
# the class of IDDA's numbers 0, 1, ..., as FedDrive brings them to Cityscapes' classes without truck, bus and train
IDDA_MAP = dict(enumerate((255, 2, 4, 255, 11, 5, 0, 0, 1, 8, 13, 3, 7, 6, 255, 255, 15, 14, 12, 9, 10)))
IDDA_CLASSES = tuple(name for name in CLASSES if name not in ("truck", "bus", "train"))
IMAGE, LABELS = "_leftImg8bit.png", "_gtFine_labelIds.png"
DOMAINS = {"test_user_same_domain": "seen", "test_user_diff_domain": "unseen"}


@dataclass(frozen=True)
class _Rows:
    """The examples of one part: files of images and label maps, and who holds each."""

    images: list[str]
    maps: list[str]
    users: list[str]


def read_cityscapes(root: Path, *, split: str, height: int, width: int, cache: int) -> Contents:
    """Read Cityscapes with its fine labels, 2,975 images for training and 500 (val) for testing.

    root: the folder that holds leftImg8bit and gtFine.
    split: folder of a federated split, relative to root, with JSON files in train/ and test/ (FedDrive); empty: all
        training images, whose users are the cities.
    height, width: of images and maps; files of 1024 x 2048 are resized if these differ.
    cache: bytes of decoded images, and of decoded maps, that stay in memory.
    """
    missing = [name for name in ("leftImg8bit", "gtFine") if not (root / name).is_dir()]
    if missing:
        raise ValueError(
            f"cityscapes: no folder {' or '.join(missing)} in {root}. Register at www.cityscapes-dataset.com, unpack "
            f"leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip there, or {ELSEWHERE}"
        )
    if split:
        train, test = (_read_split(root / split / part) for part in ("train", "test"))
    else:
        train, test = _list_cities(root, "train"), _list_cities(root, "val")
    decoding = Decoding(height, width, "exact" if (height, width) == (1024, 2048) else "stretch")
    folders = (root / "leftImg8bit", root / "gtFine")
    return _make_contents(train, test, folders, decoding, cache, CITYSCAPES_MAP, CLASSES, split)


def read_idda(root: Path, *, split: str, height: int, width: int, cache: int) -> Contents:
    """Read IDDA with one of FedDrive's splits; test images are those of seen and of unseen domains.

    root: the folder that holds IDDAsmall.
    split: folder of the split, relative to root, with JSON files in train/ and test/.
    height, width: images and maps are resized to.
    cache: bytes of decoded images, and of decoded maps, that stay in memory.
    """
    folder = root / "IDDAsmall"
    if not folder.is_dir():
        raise ValueError(
            f"idda: no folder {folder}. Ask the authors for IDDA (idda-dataset.github.io), put its folders such as "
            f"T01_CN_A there, or {ELSEWHERE}"
        )
    if not split:
        raise ValueError(
            "idda needs a split: write data.split = FOLDER, relative to the folder of the data, with JSON files in "
            "train/ and test/ (github.com/Erosinho13/FedDrive, data/idda/data/heterogeneous/country)"
        )
    train, test = (_read_split(root / split / part) for part in ("train", "test"))
    decoding = Decoding(height, width, "stretch")
    return _make_contents(train, test, (folder, folder), decoding, cache, IDDA_MAP, IDDA_CLASSES, split)


def _make_contents(
    train: _Rows,
    test: _Rows,
    folders: tuple[Path, Path],
    decoding: Decoding,
    cache: int,
    numbers: Mapping[int, int],
    names: Sequence[str],
    split: str,
) -> Contents:
    """Open the stores of both parts."""
    pairs = [
        (
            ImageFiles(folders[0], rows.images, decoding, cache),
            LabelMaps(folders[1], rows.maps, decoding, cache, numbers),
        )
        for rows in (train, test)
    ]
    domains = [DOMAINS.get(user, user) for user in test.users] if split else []
    # in FedDrive's heterogeneous splits of IDDA a client is a domain, the first folder of its images: T01_CN_A/RGB/...
    folder_of_each = [image.partition("/")[0] for image in test.images]
    return Contents(
        pairs[0],
        pairs[1],
        len(names),
        tuple(names),
        users=Groups.of(train.users),
        test_users=Groups.of(folder_of_each) if set(folder_of_each) & set(train.users) else None,
        test_domains=Groups.of(domains) if len(set(domains)) > 1 else None,
        keys=tuple(train.images),
    )


def _read_split(folder: Path) -> _Rows:
    """Read the files of every user of a split."""
    rows = _Rows([], [], [])
    for user, (images, maps) in sorted(read_json_folder(folder).items()):
        for name in (*images, *maps):
            if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(f"{folder}: user {user!r} must hold paths inside the data set, got {name!r:.80}")
        rows.images.extend(images)
        rows.maps.extend(maps)
        rows.users.extend([user] * len(images))
    return rows


def _list_cities(root: Path, part: str) -> _Rows:
    """List the images of all cities of a part, in the order of their names."""
    folder = root / "leftImg8bit" / part
    rows = _Rows([], [], [])
    for city in sorted(folder.iterdir()) if folder.is_dir() else []:
        for image in sorted(city.glob(f"*{IMAGE}")):
            rows.images.append(f"{part}/{city.name}/{image.name}")
            rows.maps.append(f"{part}/{city.name}/{image.name.removesuffix(IMAGE)}{LABELS}")
            rows.users.append(city.name)
    if not rows.images:
        raise ValueError(f"no images <city>/*{IMAGE} in {folder}")
    return rows
