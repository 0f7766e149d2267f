"""Read .npz archives of plain arrays from untrusted sources. Imports no torch."""

from __future__ import annotations

import math
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from training.storage.atomic_files import DamagedError

MOST_PACKED = 1100  # bytes that one compressed byte can expand to; zlib's limit is 1032
LONGEST_HEADER = 4096  # bytes of an .npy header


def read_npz(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read every array of an .npz file, by name; DamagedError if it is not an archive of plain arrays.

    Sizes are checked before memory is allocated, and pickles are refused.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            _require_sizes(members, os.stat(path).st_size)
            found = {}
            for info in members:
                with archive.open(info) as member:
                    found[info.filename.removesuffix(".npy")] = _read_npy(member, info)
            return found
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged archive raises one of a dozen types
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise DamagedError(f"{path}: not readable as an .npz of plain arrays ({reason})") from None


def _read_npy(member: IO[bytes], info: zipfile.ZipInfo) -> NDArray[np.generic]:
    """Read one array, if it is exactly as large as its member of the archive."""
    version = npy.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{info.filename} has version {version} of the format, expected 1 or 2")
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read_header(member, max_header_size=LONGEST_HEADER)
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds Python objects, expected numbers or text")
    size = math.prod(shape) * dtype.itemsize
    if size != info.file_size - member.tell():
        raise ValueError(
            f"{info.filename} has a header for {size} bytes of data, but holds {info.file_size - member.tell()}"
        )
    data = member.read()
    if len(data) != size:
        raise ValueError(f"{info.filename} ends early")
    if dtype.kind == "U" and np.frombuffer(data, dtype=f"{dtype.byteorder}u4").max(initial=0) > sys.maxunicode:
        raise ValueError(
            f"{info.filename} holds characters that do not exist"
        )  # numpy would make strings of them that crash
    array: NDArray[np.generic] = (
        np.frombuffer(bytearray(data), dtype=dtype) if size else np.empty(math.prod(shape), dtype)
    )
    return array.reshape(shape, order="F" if fortran else "C")


def _require_sizes(members: Sequence[zipfile.ZipInfo], whole: int) -> None:
    """Refuse members that cannot be in an archive of `whole` bytes, or that unpack to more than the machine has."""
    for info in members:
        if info.compress_size > whole or info.file_size > MOST_PACKED * info.compress_size:
            raise ValueError(f"{info.filename} would have {info.file_size} bytes, which the file cannot hold")
    size = sum(info.file_size for info in members)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise ValueError(f"it unpacks to {size / 2**30:.1f} GB, and this machine has {memory / 2**30:.1f} GB")
