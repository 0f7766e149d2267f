"""Files that are complete or not there, and that tell when a byte of them has changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from training.parts import Vectors

DTYPES = {torch.float32: "F32", torch.float64: "F64"}


class DamagedError(ValueError):
    """A file that is not what was written."""


def write_text(path: Path, text: str) -> None:
    """Replace a small file in one step."""
    aside = beside(path)
    with explained(path.name):
        try:
            write_bytes(aside, text.encode())
            os.replace(aside, path)
        finally:
            remove(aside)


def write_bytes(path: Path, *pieces: Any) -> dict[str, Any]:
    """Write pieces of memory one after the other and flush them; returns their fingerprint."""
    digest, size = hashlib.sha256(), 0
    with open(path, "wb") as file:
        for piece in pieces:
            size += file.write(piece)
            digest.update(piece)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def write_tensors(path: Path, vectors: Vectors) -> dict[str, Any]:
    """A safetensors file, from the tensors' own memory: the library's `save` holds two more copies of them all."""
    header: dict[str, Any] = {}
    end = 0
    vectors = dict(sorted(vectors.items()))  # reading gives another order, and a resumed run is to write the same file
    for name, vector in vectors.items():
        start, end = end, end + vector.numel() * vector.element_size()
        header[name] = {"dtype": DTYPES[vector.dtype], "shape": list(vector.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format wants numbers to begin at multiples of eight
    numbers = (vector.detach().contiguous().numpy() for vector in vectors.values())
    return write_bytes(path, len(text).to_bytes(8, "little"), text, *numbers)


def fingerprint(data: bytes) -> dict[str, Any]:
    """Size and SHA-256."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def read_intact(path: Path, wanted: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of a file, if they have the fingerprint that is wanted."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None
    if wanted is not None and len(data) != wanted["bytes"]:
        raise DamagedError(f"{path}: {len(data)} bytes instead of {wanted['bytes']}")
    if wanted is not None and fingerprint(data) != wanted:
        raise DamagedError(f"{path}: its content does not match the hash that was written with it")
    return data


def sealed(content: Mapping[str, Any]) -> str:
    """JSON that carries the hash of itself."""
    text = json.dumps(content, indent=2)
    return json.dumps({**content, "sha256": hashlib.sha256(text.encode()).hexdigest()}, indent=2) + "\n"


def read_sealed(path: Path) -> dict[str, Any]:
    """Content that was sealed, if not one byte of it has changed."""
    data = read_intact(path)
    try:
        content: dict[str, Any] = json.loads(data)
        del content["sha256"]
        same = sealed(content).encode() == data
    except (ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise DamagedError(f"{path}: its content does not match its own hash")
    return content


def beside(path: Path) -> Path:
    """Where something is written before it gets its name; a killed process may leave it there."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half-written."""
    for path in folder.glob(".*.tmp"):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk and not only on their way there."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """A full disk in words."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"{what} could not be written ({error.strerror}); earlier checkpoints are intact, "
            "and the same command goes on from the newest",
        ) from error
