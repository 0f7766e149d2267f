"""metrics.jsonl: lines edited, removed, doubled, moved, with seals of others, and sealed again."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, Reader
from tests.fuzz.formats.common import FINISHED, MANY, STOPPED, check_run, report_run
from tests.fuzz.mutations import spoil_bytes, spoil_value
from training.console import summaries
from training.storage import metrics

FILE = f"{FINISHED}/metrics.jsonl"
UNSEALED = f"{STOPPED}/metrics.jsonl"  # of a run that is not over: only its lines are sealed


class Metrics:
    """Records of rounds, of a finished run and of one that was stopped."""

    def __init__(self, folder: Path) -> None:
        self.sound = {name: (folder / name).read_bytes() for name in (FILE, UNSEALED)}
        self.readers = {
            "read": Reader(lambda folder: metrics.read(folder / FINISHED), may_differ=is_beginning),
            "stopped": Reader(lambda folder: metrics.read(folder / STOPPED), may_differ=is_beginning),
            "scores": Reader(lambda folder: summaries.find_scores(folder / FINISHED, 10), may_differ=lambda *_: True),
            "check": Reader(check_run, lines=MANY),
            "check stopped": Reader(lambda folder: check_run(folder, STOPPED), lines=MANY),
            "report": Reader(report_run, lines=MANY),
        }

    def case(self, rng: random.Random) -> Case:
        reader = rng.choice(list(self.readers))
        name = UNSEALED if "stopped" in reader else FILE
        data = self.sound[name]
        way = rng.random()
        if way < 0.3:
            return Case(reader, {name: spoil_bytes(rng, data, list(self.sound.values()))})
        if way < 0.6:
            return Case(reader, {name: spoil_lines(rng, data)})
        return Case(reader, {name: forge(rng, data)}, forged=True)


def is_beginning(sound: list[Any], found: list[Any]) -> bool:
    """Lines at the end may be missing: a kill cuts them off. `check` of a finished run notices."""
    return found == sound[: len(found)]


def spoil_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 2))):
        one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        way = rng.randrange(7)
        if way == 0 and len(lines) > 1:
            lines.pop(one)
        elif way == 1:
            lines.insert(other, lines[one])
        elif way == 2:
            lines[one], lines[other] = lines[other], lines[one]
        elif way == 3:
            lines[one] = spoil_bytes(rng, lines[one])
        elif way == 4:
            lines.insert(
                one, rng.choice((b"\n", b"null\n", b"[]\n", b"{}\n", b'{"round": 1}\n', b"[" * 100_000 + b"\n"))
            )
        elif way == 5:
            lines[one] = lines[one][:-40] + lines[other][-40:]
        else:
            lines[one] = lines[one].replace(b"0.", b"1.", 1)
    return b"".join(lines)


def forge(rng: random.Random, data: bytes) -> bytes:
    """Records changed, and sealed again from there on."""
    records = [json.loads(line) for line in data.splitlines()]
    place = rng.randrange(len(records))
    for record in records:
        record.pop("seal", None)
    records[place] = spoil_value(rng, records[place])
    found, seal = b"", ""
    for record in records:
        try:
            text = json.dumps(record).encode()
        except (ValueError, RecursionError, UnicodeError):
            text = b"{}"
        line = metrics._sealed(text, seal)
        seal = metrics._seal(text, seal)
        found += line
    return found
