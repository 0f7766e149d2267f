"""Workers end with their parent, also where it is killed and they are busy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training.executors.parent import end_with_parent

ROOT = Path(__file__).resolve().parents[3]
POOL = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from training.executors.parent import end_with_parent
import os

def work(path):
    open(os.path.join(path, str(os.getpid())), "w").close()
    while True:
        sum(range(10**6))  # never looks at any pipe

if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=get_context(sys.argv[1]), initializer=end_with_parent) as pool:
        list(pool.map(work, [sys.argv[2]] * 2))
"""


def wait(ready, seconds=30):
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.005)


def running(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_busy_workers_of_a_killed_parent_end(tmp_path, method, kill):
    (tmp_path / "pool.py").write_text(POOL)
    (tmp_path / "workers").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "pool.py", method, "workers"]
    parent = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        wait(lambda: len(list((tmp_path / "workers").iterdir())) == 2 or parent.poll() is not None)
        parent.send_signal(kill)
        assert parent.wait() == -kill
        wait(lambda: not running(parent.pid))  # workers, and the tracker of their resources
    finally:
        if running(parent.pid):
            os.killpg(parent.pid, signal.SIGKILL)


def test_who_has_no_parent_is_told():
    with pytest.raises(RuntimeError, match="in a process that multiprocessing has started"):
        end_with_parent()
