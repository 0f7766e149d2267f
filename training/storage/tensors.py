"""Vectors in safetensors files: written from the tensors' own memory, checked before memory is taken, read once.

A file is eight bytes with the length of a header, a header (JSON: name -> dtype, shape, data_offsets), and numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from training.rules.vectors import Vectors
from training.storage import atomic_files, files
from training.storage.atomic_files import DamagedError, Fingerprint

DTYPES = {torch.float32: "F32", torch.float64: "F64"}
KINDS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
LONGEST = 100_000_000  # bytes of a header, as in the library


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in its file."""

    name: str
    kind: np.dtype[Any]
    shape: tuple[int, ...]
    start: int  # in bytes after the header
    end: int


def write(path: Path, vectors: Vectors) -> Fingerprint:
    """Write a file and return its fingerprint. The library's `save` holds two more copies of all the tensors."""
    header: dict[str, Any] = {}
    end = 0
    vectors = dict(sorted(vectors.items()))  # reading gives another order, and a resumed run is to write the same file
    for name, vector in vectors.items():
        start, end = end, end + vector.numel() * vector.element_size()
        header[name] = {"dtype": DTYPES[vector.dtype], "shape": list(vector.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format wants numbers to begin at multiples of eight
    numbers = (vector.detach().contiguous().numpy().data for vector in vectors.values())
    return atomic_files.write_flushed(path, len(text).to_bytes(8, "little"), text, *numbers)


def read(path: Path, wanted: Mapping[str, Any]) -> Vectors:
    """Read a file that has the fingerprint that is wanted. Every tensor gets memory of its own."""
    try:
        with open(path, "rb") as file:
            entries, digest = _open(path, file, wanted)
            arrays = {}
            for entry in entries:
                array = np.empty(entry.shape, entry.kind)
                _fill(path, file, array)
                digest.update(array)
                arrays[entry.name] = torch.from_numpy(array)
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None
    if digest.hexdigest() != wanted["sha256"]:
        raise _changed(path)
    return arrays


def verify(path: Path, wanted: Mapping[str, Any]) -> None:
    """Raise DamagedError unless `read` would succeed; takes little memory."""
    try:
        with open(path, "rb") as file:
            _, digest = _open(path, file, wanted)
            while chunk := file.read(2**20):
                digest.update(chunk)
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None
    if digest.hexdigest() != wanted["sha256"]:
        raise _changed(path)


def _changed(path: Path) -> DamagedError:
    return DamagedError(f"{path}: its content does not match the hash that was written with it")


def _open(path: Path, file: BinaryIO, wanted: Mapping[str, Any]) -> tuple[list[Entry], Any]:
    """Read the header; returns what it says, in the order of the numbers, and the hash so far."""
    size = os.fstat(file.fileno()).st_size
    files.require_size(path, size, wanted)
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or not 2 <= length <= min(LONGEST, size - 8):
        raise DamagedError(f"{path}: not a safetensors file (its header would have {length} bytes)")
    text = file.read(length)
    content = files.parse_object(text)
    if content is None:
        raise DamagedError(f"{path}: not a safetensors file (its header is no JSON object)")
    content.pop("__metadata__", None)
    entries = sorted((_entry(path, *item) for item in content.items()), key=lambda entry: (entry.start, entry.end))
    ends = [0, *(entry.end for entry in entries)]
    if [entry.start for entry in entries] != ends[:-1] or ends[-1] != size - 8 - length:
        raise DamagedError(f"{path}: not a safetensors file (its tensors overlap, or leave gaps)")
    return entries, hashlib.sha256(first + text)


def _entry(path: Path, name: str, about: Any) -> Entry:
    try:
        kind, shape, (start, end) = KINDS[about["dtype"]], about["shape"], about["data_offsets"]
        numbers = [*shape, start, end]
        right = all(type(number) is int and 0 <= number < 2**60 for number in numbers)
        right = right and len(shape) <= 8 and math.prod(shape) * kind.itemsize == end - start
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise DamagedError(f"{path}: not a safetensors file of ours (the entry {name[:40]!r} makes no sense)")
    return Entry(name, kind, tuple(shape), start, end)


def _fill(path: Path, file: BinaryIO, array: np.ndarray) -> None:
    if array.size and file.readinto(array.reshape(-1).view(np.uint8)) != array.nbytes:  # type: ignore[attr-defined]
        raise DamagedError(f"{path}: ends early")
