"""Files that are complete or not there, and that tell when a byte of them has changed. This file imports no torch."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from training.storage.atomic_files import DamagedError as DamagedError  # part of what this file offers
from training.storage.atomic_files import Fingerprint

FORMAT = 1  # of run directories; see checkpoint.py. Later versions read it, and count up where they write another
LONGEST = 2**28  # bytes of a small file; what is longer was not written by us
MOST_PACKED = 1100  # bytes that one byte of a packed file can stand for; zlib's limit is 1032
MESSAGE = 4096  # bytes of an .npy header


def fingerprint(path: Path) -> Fingerprint:
    """Size and SHA-256 of a file, whatever its size, in little memory."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def verify(path: Path, wanted: Mapping[str, Any]) -> None:
    """Raise DamagedError unless a file has the fingerprint that is wanted."""
    try:
        require_size(path, os.stat(path).st_size, wanted)
        same = fingerprint(path) == wanted
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None
    if not same:
        raise DamagedError(f"{path}: its content does not match the hash that was written with it")


def require_size(path: Path, size: int, wanted: Mapping[str, Any]) -> None:
    """Raise DamagedError unless a file is as long as its fingerprint says."""
    if size != wanted["bytes"]:
        raise DamagedError(f"{path}: {size} bytes instead of {wanted['bytes']}")


def read_small(path: Path) -> bytes:
    """The bytes of a small file."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > LONGEST:
                raise DamagedError(f"{path}: longer than {LONGEST >> 20} MB, which nobody wrote")
            return file.read(LONGEST)
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None


def parse_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object, or None if it is none. Nothing in the data makes this raise."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def sealed(content: Mapping[str, Any]) -> str:
    """JSON that carries the hash of itself."""
    text = json.dumps(content, indent=2)
    return json.dumps({**content, "sha256": hashlib.sha256(text.encode()).hexdigest()}, indent=2) + "\n"


def read_sealed(path: Path) -> dict[str, Any]:
    """Content that was sealed, if not one byte of it has changed."""
    data = read_small(path)
    content = parse_object(data)
    if content is None or content.pop("sha256", None) is None or sealed(content).encode() != data:
        raise DamagedError(f"{path}: its content does not match its own hash")
    return content


def require_format(content: Mapping[str, Any], path: Path) -> None:
    """Raise if what was read from `path` has no format number, or that of a later version."""
    number = content.get("format")
    if number is None:
        raise DamagedError(
            f"{path}: made before run directories had a format number; train the run again with this version, or read "
            "it with the version that made it"
        )
    if type(number) is not int or number < 1:
        raise DamagedError(f"{path}: its format is {json.dumps(number)[:40]}, expected a whole number from 1 on")
    if number > FORMAT:
        raise DamagedError(f"{path}: written by a newer version (format {number}); update fl-landscape")


def require_inside(path: Path, root: Path) -> None:
    """Raise DamagedError if a path leads out of a directory by a link."""
    if not path.resolve().is_relative_to(root.resolve()):
        raise DamagedError(f"{path}: a link that leads out of {root}; put the file itself there")


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of an .npz file. What the archive promises is checked before memory is taken; no pickles."""
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
    except Exception as error:  # a damaged archive raises any of a dozen types; they all mean this
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise DamagedError(f"{path}: not readable as an .npz of plain arrays ({reason})") from None


def _read_npy(member: IO[bytes], info: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, if it is exactly as large as its member of the archive."""
    version = npy.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{info.filename} has version {version} of the format, expected 1 or 2")
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read_header(member, max_header_size=MESSAGE)
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds Python objects, expected numbers or text")
    size = math.prod(shape) * dtype.itemsize
    if size != info.file_size - member.tell():
        raise ValueError(f"{info.filename} says that it has {size} bytes of data, and has other")
    data = member.read()
    if len(data) != size:
        raise ValueError(f"{info.filename} ends early")
    if dtype.kind == "U" and np.frombuffer(data, dtype=f"{dtype.byteorder}u4").max(initial=0) > sys.maxunicode:
        raise ValueError(f"{info.filename} holds letters that do not exist")  # numpy makes texts of them that crash
    array: NDArray[Any] = np.frombuffer(bytearray(data), dtype=dtype) if size else np.empty(math.prod(shape), dtype)
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
