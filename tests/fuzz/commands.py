"""The command as real processes that begin in milliseconds, and that can be killed at an exact point.

All are forked from one process that has imported everything; from there on they are what a shell starts: a session of
their own, files for what they print, an exit code.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from training.executors.parent import without_main

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds for one command; they take less than one
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.utime", "shutil.rmtree")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    words: tuple[str, ...]
    code: int  # negative: the signal that ended it
    out: str
    err: str

    def __str__(self) -> str:
        return f"landscape {' '.join(self.words)!a} ended with {self.code}\n{self.out}{self.err}"


class Started:
    """A command that runs."""

    def __init__(self, folder: Path, words: tuple[str, ...], kill_at: int | None) -> None:
        start_server()
        self._words = words
        self._printed = tempfile.TemporaryDirectory(prefix="printed-")
        place = Path(self._printed.name)
        context = multiprocessing.get_context("forkserver")
        self.process = context.Process(target=_run, args=(folder, words, place / "out", place / "err", kill_at))
        self.process.start()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()

    def wait(self) -> Done:
        """Wait for its end, and for that of all processes it has started."""
        self.process.join(PATIENCE)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        pid = self.process.pid
        assert pid is not None
        left = [] if _ended(pid) else _session(pid)
        for orphan in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        place = Path(self._printed.name)
        out, err = (_read(place / name) for name in ("out", "err"))
        self._printed.cleanup()
        done = Done(self._words, -99 if code is None else code, out, err)
        assert code is not None, f"no end after {PATIENCE:.0f} s: {done}"
        assert not left, f"{len(left)} processes were left behind: {done}"
        self.process.close()
        return done


def start(folder: Path, *words: str | Path, kill_at: int | None = None) -> Started:
    """Begin a command in a folder.

    kill_at: it gets SIGKILL right before its change number `kill_at` (from 1) of a file below the folder.
    """
    return Started(folder, tuple(map(str, words)), kill_at)


def run(folder: Path, *words: str | Path, kill_at: int | None = None) -> Done:
    """A command from its beginning to its end."""
    return start(folder, *words, kill_at=kill_at).wait()


def start_server() -> None:
    """Start the process that commands are forked from, unless it runs."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "OMP_NUM_THREADS", "COLUMNS")}
    os.environ.update(PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
    os.environ.pop("COLUMNS", None)
    try:
        multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.fuzz.preloaded"])
        with without_main():
            forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _run(folder: Path, words: tuple[str, ...], out: Path, err: Path, kill_at: int | None) -> None:
    """The command in its own process."""
    os.setsid()
    os.chdir(folder)
    for number, path in ((1, out), (2, err)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = ["landscape", *words]
    if kill_at is not None:
        _kill_at(kill_at, str(folder.absolute()))
    from landscape.cli import main

    main()


def _kill_at(number: int, folder: str) -> None:
    """Have this process killed right before its change number `number` of a file below a folder."""
    left = number

    def watch(event: str, given: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "open":
            changes = isinstance(given[2], int) and bool(given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        else:
            changes = event in CHANGES
        named = changes and isinstance(given[0], (str, bytes, Path))
        if named and os.path.abspath(os.fsdecode(given[0])).startswith(folder):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _ended(session: int) -> bool:
    """Whether no process of a session is left; workers get a moment to notice that their parent is gone."""
    until = time.monotonic() + 10
    while _session(session):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _session(session: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, own = path.read_text().rpartition(")")[2].split()[:4]
            if int(own) == session and state not in "ZX":
                found.append(int(path.parent.name))
    return found
