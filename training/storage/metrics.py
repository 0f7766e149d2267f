"""The measurements of every round: one JSON object per line, sealed line by line. Imports no torch.

    {"round": 1, "train_loss": 2.1, "accuracy": 0.31, ..., "seal": "<32 hexadecimal digits>"}

Where the recipe asks for them, a record also holds

    personal_accuracy   mean over all clients of the accuracy of each one's own latest model on its own test examples
    own_accuracies      {"<client>": accuracy} of the round's participants, from which that mean is made
    client_accuracies   [accuracy, ...] of the server's model on the test examples of client 0, 1, ...

where null stands for a client without test examples.

A seal is a hash of the previous seal and of its own line, so a line that was changed, removed, moved or inserted is
detected. A last line that was cut short when the process was killed is ignored; its round is trained again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from training.storage import lock
from training.storage.atomic_files import DamagedError, explain_write_errors, write_atomically
from training.storage.run_directory import METRICS, PROVENANCE
from training.storage.verified_files import parse_object, read_small, require_format

LONGEST = 2**24  # bytes of a line; this module never writes a longer one
DIGITS = 32  # of a seal
NUMBERS = ("loss", "accuracy", "miou", "seconds")  # endings of keys whose values are numbers, or null if not measured
PREFIX = {"server": "", "mean": "mean_", "swa": "swa_"}  # how the metrics of each global model are called
Record = dict[str, Any]
SCORES = {"miou": "mIoU", "accuracy": "accuracy"}  # by which models are compared: metric -> as it is printed


def find_score(records: Iterable[Mapping[str, object]]) -> str:
    """Find the metric by which models of a run are compared: a key of SCORES.

    records: of its rounds. The accuracy, or where pixels are classified the mean IoU.

    >>> find_score([{"round": 1}, {"round": 2, "accuracy": 0.9, "miou": 0.4}])
    'miou'
    """
    measured = {key for record in records for key in record}
    return next((metric for metric in SCORES if metric in measured), "accuracy")


def read(run: Path) -> list[Record]:
    """Read the records of a run, one per finished round; DamagedError if anything was changed since it was written.

    run: its directory.
    """
    _require_readable(run)
    return [record for record, _, _ in _lines(run / METRICS)]


def append(run: Path, record: Mapping[str, object]) -> None:
    """Append the record of the next round; DamagedError if it does not follow the last one.

    run: its directory. record: measurements by name, among them `round`.
    """
    path = run / METRICS
    lock.check(path)
    last = _last(path)
    number, seal = (last[0]["round"], last[1]) if last is not None else (0, "")
    if record["round"] != number + 1:
        raise DamagedError(f"{path}: ends at round {number}, so the record of round {record['round']} cannot follow")
    with explain_write_errors(path), open(path, "ab") as file:
        file.write(_sealed(json.dumps(record).encode(), seal))


def rewind(run: Path, round: int) -> None:
    """Remove the records after a round, so that training can repeat those rounds; earlier bytes do not change.

    run: its directory. round: the last one to keep.
    """
    path = run / METRICS
    ends = [0, *(end for _, _, end in _lines(path))]
    done = len(ends) - 1
    if done < round:
        raise DamagedError(
            f"{path}: ends at round {done}, but there is a checkpoint of round {round}; remove the checkpoints "
            f"from round {done + 1} on, and training repeats those rounds"
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
    """Yield records, their seals, and the offsets in the file at which their lines end."""
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
        raise DamagedError(f"{path}: line {number + 1} is longer than {LONGEST >> 20} MB, expected a record")


def _opened(path: Path, number: int, line: bytes, before: str) -> tuple[Record, str]:
    """Return the record in a line and its seal, if it follows the line before."""
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
        "repeats those rounds"
    )


def _plausible(record: Mapping[str, object], number: int) -> bool:
    measured = [value for key, value in record.items() if key.endswith(NUMBERS)]
    own, clients = record.get("own_accuracies", {}), record.get("client_accuracies", [])
    if not isinstance(own, dict) or not isinstance(clients, list) or not all(map(_is_client, own)):
        return False
    right = all(value is None or type(value) in (int, float) for value in (*measured, *own.values(), *clients))
    right = right and all(abs(value) < 2**63 for value in record.values() if type(value) is int)
    return right and type(record.get("round")) is int and record["round"] == number


def _is_client(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 19


def _last(path: Path) -> tuple[Record, str] | None:
    """Read the last record and its seal. The lines before it were verified when the run was opened."""
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
        raise DamagedError(f"{path}: its last line is not a sealed record")
    return record, record["seal"]


def _require_readable(run: Path) -> None:
    """Raise DamagedError if a run has no format number, or that of a later version."""
    path = run / PROVENANCE
    about = parse_object(read_small(path)) if path.exists() else None
    if about is not None:
        require_format(about, path)
