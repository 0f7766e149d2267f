"""Processes that draw end with the one that started them, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.reports.conftest import make_run

SCRIPT = """
import sys, time
from pathlib import Path
from reports import drawing
from reports.command import report
from tests.reports.endless import ENDLESS
drawing.FEW = 0
report([Path(one) for one in sys.argv[2:]], Path(sys.argv[1]), figures=[ENDLESS, ENDLESS], workers=2)
"""


def children(of: int) -> set[int]:
    """All processes below one."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):  # gone in between
            continue
    found = {of}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {of}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_is_left_behind(end: signal.Signals, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=())
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "out"), str(run)]
    environment = {**os.environ, "PYTHONPATH": root, "ENDLESS": str(tmp_path / "drawing")}
    started = subprocess.Popen(command, env=environment, cwd=root, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(list(tmp_path.glob("drawing*"))) == 2)
        below = children(started.pid)
        assert len(below) >= 2  # two that draw, and a resource tracker
        started.send_signal(end)
        started.wait(10)
        wait_until(lambda: not any(map(alive, below)))
    finally:
        started.kill()
        started.wait(10)


def wait_until(true: object, seconds: float = 60.0) -> None:
    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
