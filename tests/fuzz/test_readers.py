"""A sample of what `make fuzz` does: a reader returns what was written, or refuses it in words that name the file."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.cases import Bench, Case, Reader
from tests.fuzz.formats import FORMATS
from tests.fuzz.runner import Child, Tally, Task, fuzz

INPUTS = 75  # of every format


@pytest.fixture(scope="module")
def tallies() -> dict[str, Tally]:
    """What became of the sample, by format; one process tries them all."""
    return fuzz([Task(name, 0, 0, INPUTS) for name in FORMATS])


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_files_are_refused_in_words(tallies: dict[str, Tally], format: str):
    tally = tallies[format]
    assert not tally.faults, "\n".join(map(str, tally.faults))
    assert tally.counts.total() == INPUTS
    assert tally.counts["refused"] > INPUTS / 3, tally.counts  # else most inputs were harmless
    assert len(tally.readers) >= 3, tally.readers


class Careless:
    """Readers that do what readers must not."""

    def __init__(self, folder: Path) -> None:
        def read(folder: Path) -> bytes:
            data = (folder / "file").read_bytes()
            if data == b"uncaught":
                raise KeyError("file")
            if data == b"unnamed":
                raise ValueError("something is wrong")
            if data == b"lines":
                raise ValueError("file\nis\nwrong")
            if data == b"refused":
                raise ValueError(f"{folder / 'file'}: not what was written")
            if data == b"memory":
                raise MemoryError
            return data

        self.readers: Mapping[str, Reader] = {"read": Reader(read)}

    def case(self, rng: random.Random) -> Case:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("data", "forged", "outcome"),
    [
        ("sound", False, "same"),
        ("refused", False, "refused"),
        ("changed", False, "different"),
        ("changed", True, "other"),
        ("uncaught", False, "uncaught"),
        ("unnamed", False, "unclear"),
        ("lines", False, "unclear"),
        ("memory", False, "memory"),
    ],
)
def test_a_careless_reader_is_noticed(tmp_path: Path, data: str, forged: bool, outcome: str):
    (tmp_path / "file").write_bytes(b"sound")
    bench = Bench(tmp_path, Careless(tmp_path))
    assert bench.run(Case("read", {"file": data.encode()}, forged))[0] == outcome
    assert (tmp_path / "file").read_bytes() == b"sound"


def test_a_process_that_dies_is_one_inputs_fault(monkeypatch: pytest.MonkeyPatch):
    child = Child()
    answers: list[Any] = [(b"ready", ("", "")), (b'[0, "same", "", "read"]', ("", "")), (None, ("crash", "it died"))]
    answers += [(b"ready", ("", "")), (b'[2, "refused", "", "read"]', ("", ""))]
    begun: list[int] = []
    monkeypatch.setattr(child, "_begin", lambda task, first: begun.append(first))
    monkeypatch.setattr(child, "_line", lambda patience=0.0: answers.pop(0))
    monkeypatch.setattr(child, "_kill", lambda: None)
    found = list(child.run(Task("toml", 0, 0, 3)))
    child.close()
    assert [(index, outcome) for index, outcome, _, _ in found] == [(0, "same"), (1, "crash"), (2, "refused")]
    assert begun == [0, 2]
