"""JSON: checkpoints' descriptions, the status, where a run comes from, personal scores, and the lock."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, Reader
from tests.fuzz.formats.common import FINISHED, MANY, STOPPED, check_run, report_run
from tests.fuzz.mutations import spoil_bytes, spoil_value
from tests.fuzz.workspace import LAST
from training import verification
from training.console import summaries
from training.personal import scores
from training.storage import checkpoint, lock, run_directory, verified_files

META = f"{FINISHED}/checkpoints/{LAST}/meta.json"
STATUS, PROVENANCE = f"{FINISHED}/status.json", f"{FINISHED}/provenance.json"
RUNNING = f"{STOPPED}/status.json"
PERSONAL = f"{FINISHED}/personal/finetune.json"
LOCK = f"{STOPPED}/lock"
# which readers look at which file
LOOKERS = {
    META: ("checkpoint", "problem", "check"),
    STATUS: ("status", "check", "report"),
    RUNNING: ("check stopped",),
    PROVENANCE: ("provenance", "check", "report"),
    PERSONAL: ("personal", "report"),
    LOCK: ("lock",),
}
SEALED = (META, STATUS, RUNNING, PERSONAL)


class Sealed:
    """Sealed and plain JSON with other types, huge numbers, doubled keys, deep nesting; half of it sealed again."""

    def __init__(self, folder: Path) -> None:
        sound_lock = lock._description("train")
        self.sound = {name: (folder / name).read_bytes() if name != LOCK else sound_lock for name in LOOKERS}
        self.readers = {
            "checkpoint": Reader(lambda folder: checkpoint.load(folder / META.rpartition("/")[0])),
            "problem": Reader(problem),
            "check": Reader(check_run, lines=MANY),
            "check stopped": Reader(lambda folder: check_run(folder, STOPPED), lines=MANY),
            "status": Reader(lambda folder: summaries.find_standing(folder / FINISHED)),
            "provenance": Reader(lambda folder: run_directory.read_provenance(folder / FINISHED), protected=False),
            "report": Reader(report_run, protected=False, lines=MANY),
            "personal": Reader(lambda folder: scores.load(folder / PERSONAL)),
            "lock": Reader(hold, protected=False),
        }

    def case(self, rng: random.Random) -> Case:
        name = rng.choices(list(LOOKERS), weights=[3, 2, 1, 1, 1, 1])[0]
        reader, data = rng.choice(LOOKERS[name]), self.sound[name]
        if rng.random() < 0.35:
            return Case(reader, {name: spoil_bytes(rng, data, list(self.sound.values()))})
        content = spoil_value(rng, json.loads(data))
        if name in SEALED and isinstance(content, dict) and rng.random() < 0.8:
            content.pop("sha256", None)
            return Case(reader, {name: written(lambda: verified_files.seal(content), data)}, forged=True)
        text = written(lambda: json.dumps(content, indent=2), data)
        return Case(reader, {name: rng.choice(TEXTS)(rng, text)})


def written(write: Any, otherwise: bytes) -> bytes:
    """What was written, or something else where it cannot be: deep nesting, surrogates."""
    try:
        return bytes(write().encode())
    except (RecursionError, UnicodeError, ValueError):
        return otherwise[:-10]


def problem(folder: Path) -> str:
    """What `check` says of a single checkpoint."""
    path = folder / META.rpartition("/")[0]
    found = verification.check_checkpoint(path)
    if found:
        raise ValueError(found)
    return found


def hold(folder: Path) -> bool:
    """Take a run over from whoever holds it, if nobody is there."""
    with lock.hold(folder / STOPPED, "test"):
        pass
    if (folder / LOCK).exists():
        raise AssertionError("a lock was left behind")
    return True


def _as_it_is(rng: random.Random, text: bytes) -> bytes:
    return text


def _deep(rng: random.Random, text: bytes) -> bytes:
    depth = rng.choice((100, 1000, 100_000))
    return rng.choice((b"[" * depth + b"]" * depth, b'{"a": ' * depth + b"1" + b"}" * depth, b"[" * depth))


def _double_key(rng: random.Random, text: bytes) -> bytes:
    return text.replace(b"{", b'{"round": 3, "sha256": "0", "format": 1, ', 1)


def _number(rng: random.Random, text: bytes) -> bytes:
    number = rng.choice((b"NaN", b"Infinity", b"1e999", b"-0", b"9" * 5000, b"01", b"1.", b"0x1"))
    return text.replace(b"4", number, 1)


def _coded(rng: random.Random, text: bytes) -> bytes:
    return rng.choice((b"\xef\xbb\xbf" + text, text.decode().encode("utf-16"), text + text, text + b"\x00", b""))


TEXTS = (_as_it_is, _as_it_is, _deep, _double_key, _number, _coded)
