"""Arrays in safetensors files: written without copies, checked before memory is allocated. Imports no torch.

A file is eight bytes with the length of the header, the header (JSON: name -> dtype, shape, data_offsets), and the
numbers. The safetensors library needs memory for two more copies of all tensors to save them, and trusts the header.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from training.storage.atomic_files import DamagedError, Fingerprint, write_flushed
from training.storage.run_directory import read_meta
from training.storage.verified_files import parse_object, require_size

Floats = NDArray[np.floating[Any]]
FloatDtype = np.dtype[np.floating[Any]]

DTYPES: dict[str, FloatDtype] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
LONGEST = 100_000_000  # bytes of a header, as in the library


@dataclass(frozen=True)
class Entry:
    """The position of a tensor in its file."""

    name: str
    dtype: FloatDtype
    shape: tuple[int, ...]
    start: int  # in bytes after the header
    end: int


class Stored(Protocol):
    """An array that is somewhere else and is read when it is written."""

    @property
    def dtype(self) -> FloatDtype: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    def read(self) -> Floats:
        """The array itself."""


def write(path: Path, arrays: Mapping[str, Floats | Stored]) -> Fingerprint:
    """Write arrays to a new file, wait until they are on the disk, and return the file's fingerprint.

    path: the new file. arrays: float32 or float64, by name; stored ones are in memory one at a time.
    """
    names = {dtype: name for name, dtype in DTYPES.items()}
    header: dict[str, object] = {}
    end = 0
    arrays = dict(sorted(arrays.items()))  # reading gives another order, and a resumed run has to write the same file
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format wants numbers to begin at multiples of eight
    return write_flushed(path, itertools.chain((len(text).to_bytes(8, "little"), text), _read_bytes(arrays)))


def _read_bytes(arrays: Mapping[str, Floats | Stored]) -> Iterator[memoryview]:
    for array in arrays.values():
        yield np.ascontiguousarray(array if isinstance(array, np.ndarray) else array.read()).data


def read(path: Path, expected: Fingerprint) -> dict[str, Floats]:
    """Read the arrays of a file, by name; DamagedError if the file was changed.

    expected: the fingerprint that `write` returned.
    """
    return dict(read_each(path, expected))


def read_each(path: Path, expected: Fingerprint) -> Iterator[tuple[str, Floats]]:
    """Read the arrays of a file one after the other, with their names; DamagedError at the end if it was changed.

    expected: the fingerprint that `write` returned.
    """
    try:
        with open(path, "rb") as file:
            entries, digest = _open(path, file, expected)
            for entry in entries:
                array = np.empty(entry.shape, entry.dtype)
                _fill(path, file, array)
                digest.update(array.data)
                yield entry.name, array
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None
    if digest.hexdigest() != expected["sha256"]:
        raise _changed(path)


def check_checkpoint(path: Path) -> str:
    """Describe what is wrong with a checkpoint, given its folder; an empty string if it is intact."""
    try:
        for file, expected in read_meta(path)["files"].items():
            verify(path / file, expected)
    except DamagedError as error:
        return str(error)
    return ""


def verify(path: Path, expected: Fingerprint) -> None:
    """Raise DamagedError unless `read` with the same arguments would succeed; needs little memory."""
    try:
        with open(path, "rb") as file:
            _, digest = _open(path, file, expected)
            while chunk := file.read(2**20):
                digest.update(chunk)
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None
    if digest.hexdigest() != expected["sha256"]:
        raise _changed(path)


def _changed(path: Path) -> DamagedError:
    return DamagedError(f"{path}: its content does not match the hash that was written with it")


def _open(path: Path, file: BinaryIO, expected: Fingerprint) -> tuple[list[Entry], hashlib._Hash]:
    """Read the header; return its entries in the order of their data, and the hash so far."""
    size = os.fstat(file.fileno()).st_size
    require_size(path, size, expected)
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or not 2 <= length <= min(LONGEST, size - 8):
        raise DamagedError(f"{path}: not a safetensors file (its header would have {length} bytes)")
    text = file.read(length)
    content = parse_object(text)
    if content is None:
        raise DamagedError(f"{path}: not a safetensors file (its header is not a JSON object)")
    content.pop("__metadata__", None)
    entries = sorted((_entry(path, *item) for item in content.items()), key=lambda entry: (entry.start, entry.end))
    ends = [0, *(entry.end for entry in entries)]
    if [entry.start for entry in entries] != ends[:-1] or ends[-1] != size - 8 - length:
        raise DamagedError(f"{path}: not a safetensors file (its tensors overlap, or leave gaps)")
    return entries, hashlib.sha256(first + text)


def _entry(path: Path, name: str, about: Any) -> Entry:
    try:
        dtype, shape, (start, end) = DTYPES[about["dtype"]], about["shape"], about["data_offsets"]
        numbers = [*shape, start, end]
        right = all(type(number) is int and 0 <= number < 2**60 for number in numbers)
        right = right and len(shape) <= 8 and math.prod(shape) * dtype.itemsize == end - start
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise DamagedError(f"{path}: not a safetensors file of this package (the entry {name[:40]!r} is invalid)")
    return Entry(name, dtype, tuple(shape), start, end)


def _fill(path: Path, file: BinaryIO, array: Floats) -> None:
    if array.size and file.readinto(array.reshape(-1).view(np.uint8)) != array.nbytes:  # type: ignore[attr-defined]
        raise DamagedError(f"{path}: ends early")
