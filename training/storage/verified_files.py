"""Files in which every changed byte is detected: by a fingerprint, or by a hash inside the JSON. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.storage.atomic_files import DamagedError, Fingerprint

FORMAT = 1  # of run directories; later versions still read it, and use a higher number for another format
LONGEST = 2**28  # bytes of a small file; this package never writes longer ones

Json = dict[str, Any]  # a JSON object: its values are whatever the file holds


def fingerprint(path: Path) -> Fingerprint:
    """Return the size and SHA-256 of a file, reading it in small blocks."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def verify(path: Path, expected: Fingerprint) -> None:
    """Raise DamagedError unless a file has the expected size and hash."""
    try:
        require_size(path, os.stat(path).st_size, expected)
        same = fingerprint(path) == expected
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None
    if not same:
        raise DamagedError(f"{path}: its content does not match the hash that was written with it")


def require_size(path: Path, size: int, expected: Fingerprint) -> None:
    """Raise DamagedError unless `size`, that of the file at `path`, is the expected one."""
    if size != expected["bytes"]:
        raise DamagedError(f"{path}: {size} bytes instead of {expected['bytes']}")


def read_small(path: Path) -> bytes:
    """Read a whole small file; DamagedError if it cannot be read or is longer than any that this package writes."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > LONGEST:
                raise DamagedError(f"{path}: longer than {LONGEST >> 20} MB, expected a small file")
            return file.read(LONGEST)
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None


def parse_object(data: bytes) -> Json | None:
    """Parse a JSON object; None if the data are anything else. Never raises."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def seal(content: Mapping[str, object]) -> str:
    """Write content as JSON text with an entry `sha256`, the hash of the rest."""
    text = json.dumps(content, indent=2)
    return json.dumps({**content, "sha256": hashlib.sha256(text.encode()).hexdigest()}, indent=2) + "\n"


def read_sealed(path: Path) -> Json:
    """Read JSON written by `seal`; DamagedError if a byte of it has changed."""
    data = read_small(path)
    content = parse_object(data)
    if content is None or content.pop("sha256", None) is None or seal(content).encode() != data:
        raise DamagedError(f"{path}: its content does not match its own hash")
    return content


def require_format(content: Mapping[str, object], path: Path) -> None:
    """Raise DamagedError if content has no format number, or that of a later version.

    content: what was read. path: its file, for messages.
    """
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
    """Raise DamagedError if a path is a link that leads out of the directory `root`."""
    if not path.resolve().is_relative_to(root.resolve()):
        raise DamagedError(f"{path}: a link that leads out of {root}; put the file itself there")
