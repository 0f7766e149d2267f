"""Files that are complete or not there: written under a temporary name, flushed, then renamed. Imports no torch.

    write_atomically(run / "status.json", b"{}")
    with replace_file(run / "partition.png") as temporary:
        figure.savefig(temporary, format="png")

A process that is killed leaves the old file as it was, and at most a file named .*.tmp beside it. Before a file gets
its final name, the lock of the directory is checked: a process that lost it writes nothing more.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from training.storage import lock


class DamagedError(ValueError):
    """A file that does not hold what was written: cut short, changed, or not one of ours."""


class Fingerprint(TypedDict):
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str


def write_atomically(path: Path, *content: bytes | memoryview) -> None:
    """Write or replace a file in one step.

    path: the file; folders above it are created.
    content: pieces of the file, written one after the other.

    Raises OSError with the file's name and the reason if the disk is full; the old file is then unchanged.
    """
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        for piece in content:
            file.write(piece)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to, and rename it to `path` at the end; after an error `path` is unchanged."""
    temporary = temporary_path(path)
    with explain_write_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            flush(temporary)
            lock.check(path)
            os.replace(temporary, path)
        finally:
            remove(temporary)


def write_flushed(path: Path, content: Iterable[bytes | memoryview]) -> Fingerprint:
    """Write pieces of memory one after the other, wait until they are on the disk, and return their fingerprint."""
    digest, size = hashlib.sha256(), 0
    with open(path, "wb") as file:
        for piece in content:
            size += file.write(piece)
            digest.update(piece)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def temporary_path(path: Path) -> Path:
    """Where a file or folder is written before it gets its name. It is hidden and ends in .tmp."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_temporary_files(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder. The caller must hold its lock."""
    for path in folder.glob(".*.tmp"):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explain_write_errors(what: Path | str) -> Iterator[None]:
    """Raise a failed write (a full disk, say) as an OSError that names what was to be written, and what to do.

    what: the file, or a description of it.
    """
    try:
        yield
    except lock.LeaseLostError:
        raise
    except OSError as error:
        raise OSError(
            error.errno,
            f"{what} could not be written ({error.strerror or error}); what was saved before is intact, and the "
            "same command resumes from there",
        ) from error
