"""CIFAR-10-C and CIFAR-100-C: the published test images under corruptions, mapped from their files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from training.data.formats.files import Published, unpack, verify

FILES = {  # data set -> its corrupted test images
    "cifar10": Published(
        "CIFAR-10-C.tar",
        "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
        "56bf5dcef84df0e2308c6dcbcbbd8499",
        2_918_471_680,
    ),
    "cifar100": Published(
        "CIFAR-100-C.tar",
        "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
        "11f0ed0f1191edbf9fa23466ae6021d3",
        2_918_473_216,
    ),
}
SEVERITIES = 5


def find_folder(name: str, root: Path, check: bool = True) -> Path | None:
    """Find the folder of the corrupted images of a data set; unpack their archive where only that is there.

    name: of the data set.
    root: the folder of the data.
    check: whether the checksum of the archive is compared.
    Returns None where there are none.
    """
    if name not in FILES:
        return None
    archive = root / FILES[name].file
    folder = archive.with_suffix("")
    if not folder.is_dir() and archive.is_file():
        if check:
            verify(archive, FILES[name])
        unpack(archive, folder)
    return folder if folder.is_dir() else None


def read_corrupted(folder: Path, corruption: str, severity: int, labels: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Read the test images under one corruption.

    folder: of the files, one for each corruption.
    corruption: its name.
    severity: 1 to 5.
    labels: of the test images as they are, in their order; the files must have the same.
    Returns images (N, 3, 32, 32), mapped from the file.
    """
    own = _open(folder / "labels.npy", (None,))
    images = _open(folder / f"{corruption}.npy", (None, 32, 32, 3))
    total = len(labels)
    if len(images) != SEVERITIES * total or len(own) != len(images):
        raise ValueError(
            f"{folder}: {corruption}.npy has {len(images):,} images and labels.npy {len(own):,} labels, expected "
            f"{SEVERITIES} times the {total:,} test images"
        )
    rows = slice((severity - 1) * total, severity * total)
    if images.dtype != np.uint8 or (own[rows] != labels).any():
        raise ValueError(f"{folder}: {corruption}.npy or labels.npy does not belong to these test images")
    return images[rows].transpose(0, 3, 1, 2)


def _open(path: Path, shape: tuple[int | None, ...]) -> NDArray[np.uint8]:
    """Map an .npy file of plain numbers."""
    if not path.is_file():
        raise ValueError(f"no {path}: the folder is not complete. Unpack the archive again")
    try:
        array: NDArray[np.uint8] = npy.open_memmap(path, mode="r")
    except Exception as error:  # a damaged header raises one of many types
        reason = str(error).partition("\n")[0][:200]
        raise ValueError(f"{path} is not an .npy file of numbers, or is cut short ({reason})") from None
    if len(array.shape) != len(shape) or any(
        want not in (None, have) for want, have in zip(shape, array.shape, strict=True)
    ):
        raise ValueError(f"{path} must have the shape {shape} (None: any number), got {array.shape}")
    return array
