"""Hand inputs out to processes, and collect what became of each; a process that dies or hangs is one input's fault."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
HANGS = 30.0  # seconds after which an input is given up; reading one takes milliseconds
STARTS = 300.0  # seconds after which a process is given up that imports everything and trains a run, before it is ready
FINE = ("same", "other", "refused")
PIECE = 1000  # inputs handed out at once


@dataclass(frozen=True)
class Fault:
    """An input that was not answered as it should be. The first three numbers make it again."""

    format: str
    seed: int
    index: int
    outcome: str
    more: str
    reader: str

    def __str__(self) -> str:
        place = f"--format {self.format} --seed {self.seed} --first {self.index} --inputs 1"
        return f"{self.format} {self.reader}: {self.outcome}: {self.more} ({place})"


@dataclass
class Tally:
    """What became of the inputs of a format."""

    counts: Counter[str] = field(default_factory=Counter)
    readers: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True)
class Task:
    format: str
    seed: int
    first: int
    last: int

    def pieces(self) -> Iterator[Task]:
        """Parts that several processes can do."""
        for first in range(self.first, self.last, PIECE):
            yield Task(self.format, self.seed, first, min(first + PIECE, self.last))


class Child:
    """A process that tries inputs; begun when it is needed, and anew when it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as this

    def close(self) -> None:
        self._end()
        self._log.close()

    def _end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            try:
                self._process.wait(HANGS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None
        self._rest = b""

    def run(self, task: Task) -> Iterator[tuple[int, str, str, str]]:
        """Every input of a task in order: index, outcome, more, reader."""
        place = task.first
        while place < task.last:
            self._begin(task, place)
            line, why = self._line(STARTS)
            if line is None:
                raise RuntimeError(f"the directory for {task.format} could not be made: {why[1]}")
            while place < task.last:
                line, why = self._line()
                if line is None:
                    yield place, *why, "?"
                    self._kill()
                    place += 1
                    break
                index, outcome, more, reader = json.loads(line)
                yield index, outcome, more, reader
                place = index + 1
                if outcome == "memory":  # what it took may not come back, and would be the next one's fault
                    self._kill()
                    break

    def _begin(self, task: Task, first: int) -> None:
        if self._process is None:
            self._log.truncate(0)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.child"],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([task.format, task.seed, first, task.last]).encode() + b"\n")
        self._process.stdin.flush()

    def _line(self, patience: float = HANGS) -> tuple[bytes | None, tuple[str, str]]:
        """The next answer; or none, and why."""
        assert self._process is not None
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            if not select.select([self._process.stdout], [], [], patience)[0]:
                return None, ("hang", f"no answer for {patience:.0f} s")
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                code = self._process.wait()
                self._log.seek(0)
                told = self._log.read().decode(errors="replace").strip().splitlines()
                return None, ("crash", f"the process ended with {code}; {told[-1][:300] if told else 'nothing said'}")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line, ("", "")

    def _kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._end()


def fuzz(tasks: Iterable[Task], workers: int = 1) -> dict[str, Tally]:
    """Try all inputs; returns a tally by format."""
    found: dict[str, Tally] = {}
    waiting = [piece for task in tasks for piece in task.pieces()]
    for piece in waiting:
        found.setdefault(piece.format, Tally())
    queue = iter(waiting)

    def work(_: int) -> None:
        child = Child()
        try:
            while (task := next(queue, None)) is not None:
                tally = found[task.format]
                for index, outcome, more, reader in child.run(task):
                    tally.counts[outcome] += 1
                    tally.readers[reader] += 1
                    if outcome not in FINE:
                        tally.faults.append(Fault(task.format, task.seed, index, outcome, more, reader))
        finally:
            child.close()

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    return found
