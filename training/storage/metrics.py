"""What every round measured: one JSON object per line, sealed line by line. This file imports no torch.

    {"round": 1, "train_loss": 2.1, "accuracy": 0.31, ..., "seal": "<32 hexadecimal digits>"}

A seal is a hash of the seal before it and of its own line, so no line can be changed, removed or moved, nor another put
between two, without being noticed here. A last line that a kill cut short is left out; its round is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from training.storage import lock
from training.storage.atomic_files import DamagedError, explain_write_errors, write_atomically
from training.storage.run_directory import METRICS, PROVENANCE
from training.storage.verified_files import parse_object, read_small, require_format

LONGEST = 2**24  # bytes of a line; what is longer was not written by us
DIGITS = 32  # of a seal
NUMBERS = ("loss", "accuracy", "seconds")  # how keys end whose values are numbers, or null where not measured
Record = dict[str, Any]


def read(run: Path) -> list[Record]:
    """One record per finished round, 1, 2, ...; raises DamagedError if anything was changed since it was written."""
    _require_readable(run)
    return [record for record, _, _ in _lines(run / METRICS)]


def append(run: Path, record: Mapping[str, Any]) -> None:
    """Add the record of the next round."""
    path = run / METRICS
    lock.check(path)
    last = _last(path)
    number, seal = (last[0]["round"], last[1]) if last is not None else (0, "")
    if record["round"] != number + 1:
        raise DamagedError(f"{path}: ends at round {number}, so the record of round {record['round']} cannot follow")
    with explain_write_errors(path), open(path, "ab") as file:
        file.write(_sealed(json.dumps(record).encode(), seal))


def rewind(run: Path, round: int) -> None:
    """Forget records after a round: they will be made again. Those before it stay as they are, to the byte."""
    path = run / METRICS
    ends = [0, *(end for _, _, end in _lines(path))]
    done = len(ends) - 1
    if done < round:
        raise DamagedError(
            f"{path}: ends at round {done}, but there is a checkpoint of round {round}; remove the checkpoints "
            f"from round {done + 1} on, and training makes them again"
        )
    if not path.exists():
        write_atomically(path)
    elif path.stat().st_size != ends[round]:
        with open(path, "rb") as file:
            write_atomically(path, file.read(ends[round]))


def _sealed(text: bytes, before: str) -> bytes:
    return b'%s, "seal": "%s"}\n' % (text[:-1], _seal(text, before).encode())


def _seal(text: bytes, before: str) -> str:
    return hashlib.sha256(before.encode() + text).hexdigest()[:DIGITS]


def _lines(path: Path) -> Iterator[tuple[Record, str, int]]:
    """Records with their seals, and where their lines end in the file."""
    if not path.exists():
        return
    seal, end, number = "", 0, 0
    try:
        with open(path, "rb") as file:
            while (line := file.readline(LONGEST)).endswith(b"\n"):
                number, end = number + 1, end + len(line)
                record, seal = _opened(path, number, line, seal)
                yield record, seal, end
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from None
    if len(line) == LONGEST:
        raise DamagedError(f"{path}: line {number + 1} is longer than {LONGEST >> 20} MB, which nobody wrote")


def _opened(path: Path, number: int, line: bytes, before: str) -> tuple[Record, str]:
    """The record in a line, if it follows the one before."""
    record = parse_object(line)
    if record is None or not _plausible(record, number):
        problem = f"line {number} is not the record of round {number}"
    elif "seal" not in record:
        problem = f"line {number} has no seal: written by hand, or before lines were sealed"
    else:
        text = line[: -len(_sealed(b"", ""))] + b"}"
        if _sealed(text, before) == line:
            return record, record.pop("seal")
        problem = f"line {number} does not match its seal: it was changed, or a line before it was removed"
    raise DamagedError(
        f"{path}: {problem}; end the file before it and remove the checkpoints from round {number} on, and training "
        "makes them again"
    )


def _plausible(record: Mapping[str, Any], number: int) -> bool:
    measured = (value for key, value in record.items() if key.endswith(NUMBERS))
    right = all(value is None or type(value) in (int, float) for value in measured)
    right = right and all(abs(value) < 2**63 for value in record.values() if type(value) is int)
    return right and type(record.get("round")) is int and record["round"] == number


def _last(path: Path) -> tuple[Record, str] | None:
    """The last record and its seal. The lines before it were looked at when the run was opened."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            block = 4096
            while True:
                file.seek(max(size - block, 0))
                lines = file.read(block).splitlines()
                if len(lines) > 1 or block >= size:
                    break
                block *= 4
    except FileNotFoundError:
        return None
    if not lines:
        return None
    record = parse_object(lines[-1])
    if record is None or type(record.get("round")) is not int or not isinstance(record.get("seal"), str):
        raise DamagedError(f"{path}: its last line is no sealed record")
    return record, record["seal"]


def _require_readable(run: Path) -> None:
    """Say so if a run is of a later version, or of one before formats had numbers."""
    path = run / PROVENANCE
    about = parse_object(read_small(path)) if path.exists() else None
    if about is not None:
        require_format(about, path)
