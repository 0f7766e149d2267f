"""One writer per directory: many processes at once, killed holders, other hosts, and leases that are lost."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from training.storage import lock
from training.storage.lock import BusyError, LeaseLostError

ROOT = Path(__file__).resolve().parents[3]

# Counts under the lease, in a way that loses counts whenever two are inside at once.
COUNTER = """
import sys, time
from pathlib import Path
from training.storage import lock
folder, wanted = Path(sys.argv[1]), int(sys.argv[2])
file, inside = folder.parent / "count", folder.parent / "inside"
done = 0
while done < wanted:
    try:
        with lock.hold(folder, "count"):
            inside.mkdir()
            number = int(file.read_text())
            time.sleep(0.0005)
            file.write_text(str(number + 1))
            inside.rmdir()
            done += 1
    except lock.BusyError:
        time.sleep(0.0005)
"""
KEEPER = """
import sys, time
from pathlib import Path
from training.storage import lock
with lock.hold(Path(sys.argv[1]), "keep"):
    print("held", flush=True)
    time.sleep(100)
"""
RACER = """
import sys
from pathlib import Path
from training.storage import lock
for line in sys.stdin:
    folder = Path(line.strip())
    try:
        with lock.hold(folder, "race"):
            print("held", flush=True)
            sys.stdin.readline()
        print("given back", flush=True)
    except lock.BusyError:
        print("busy", flush=True)
"""


def process(script, *words):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", script, *map(str, words)], env=environment, **pipes)


@pytest.fixture
def keeper(tmp_path):
    """A process that holds the lease on `run`."""
    child = process(KEEPER, tmp_path / "run")
    try:
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def left_by(folder, **changes):
    """A lock as a process leaves it that was killed."""
    raw = json.loads(lock._description("train")) | changes
    (folder / "lock").write_text(json.dumps(raw, indent=2) + "\n")


DEAD = {"pid": 2**22 + 1}  # above the largest number that Linux gives
ELSEWHERE = {"host": "far", "machine": "another", "pid": 1}


def test_a_lease_leaves_nothing_behind(tmp_path):
    with lock.hold(tmp_path / "run", "train"):
        assert names(tmp_path / "run") == ["lock"]
        about = json.loads((tmp_path / "run" / "lock").read_text())
        assert (about["pid"], about["purpose"]) == (os.getpid(), "train")
        (tmp_path / "run" / "result").write_text("x")
    assert names(tmp_path / "run") == ["result"]


def test_a_directory_made_for_nothing_is_removed(tmp_path):
    with pytest.raises(ZeroDivisionError), lock.hold(tmp_path / "runs" / "a" / "b", "train"):
        raise ZeroDivisionError
    assert names(tmp_path) == []
    (tmp_path / "mine").mkdir()
    with lock.hold(tmp_path / "mine" / "a", "train"):
        pass
    assert names(tmp_path) == ["mine"]


def test_the_other_writer_gets_one_line(tmp_path, keeper):
    run = tmp_path / "run"
    with pytest.raises(BusyError) as error, lock.hold(run, "train"):
        pass
    assert str(error.value).startswith(f"{run} is being written by keep (pid {keeper.pid} on host ")
    assert str(error.value).endswith("): wait for it, or choose another --out")
    assert "\n" not in str(error.value)
    assert names(run) == ["lock"]


def test_a_killed_holder_is_followed_at_once(tmp_path, keeper):
    keeper.kill()  # and not waited for: its remains are still in the table of processes
    deadline = time.monotonic() + 10
    while lock._started(keeper.pid):
        assert time.monotonic() < deadline
    with lock.hold(tmp_path / "run", "train"):
        assert names(tmp_path / "run") == ["lock"]


def test_a_suspended_holder_on_this_machine_keeps_its_lease(tmp_path, keeper):
    keeper.send_signal(signal.SIGSTOP)
    os.utime(tmp_path / "run" / "lock", (0, 0))
    with pytest.raises(BusyError), lock.hold(tmp_path / "run", "train"):
        pass


def test_a_number_that_another_process_has_now_is_no_holder(tmp_path):
    left_by(tmp_path, started="1")
    with lock.hold(tmp_path, "train"):
        pass
    assert names(tmp_path) == []


def test_other_machines_are_judged_by_their_signs_of_life(tmp_path):
    left_by(tmp_path, **ELSEWHERE)
    with pytest.raises(BusyError, match=r"written by train \(pid 1 on host far"), lock.hold(tmp_path, "train"):
        pass
    now = (tmp_path / "lock").stat().st_mtime
    os.utime(tmp_path / "lock", (now - lock.STALE - 1,) * 2)
    with lock.hold(tmp_path, "train"):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"[" * 4000, b'{"pid": "x"}', b"\xff\xfe"])
def test_a_lock_that_cannot_be_read_counts_until_it_is_old(tmp_path, content):
    (tmp_path / "lock").write_bytes(content)
    with pytest.raises(BusyError, match="written by another process"), lock.hold(tmp_path, "train"):
        pass
    os.utime(tmp_path / "lock", (0, 0))
    with lock.hold(tmp_path, "train"):
        pass


def test_signs_of_life_are_given(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "RENEWED", 0.01)
    with lock.hold(tmp_path, "train"):
        os.utime(tmp_path / "lock", (0, 0))
        deadline = time.monotonic() + 10
        while (tmp_path / "lock").stat().st_mtime < 1:
            assert time.monotonic() < deadline


def test_who_was_taken_over_stops_writing_and_leaves_the_lock_of_the_other(tmp_path):
    with lock.hold(tmp_path, "train"):
        lock.check(tmp_path / "checkpoints" / "round_000001")
        left_by(tmp_path, **ELSEWHERE)
        with pytest.raises(LeaseLostError, match=r"was taken over by train \(pid 1 on host far"):
            lock.check(tmp_path / "checkpoints" / "round_000001")
        lock.check(tmp_path.parent / "elsewhere")  # not under the lease
    assert json.loads((tmp_path / "lock").read_text())["host"] == "far"


def test_a_removed_lock_is_a_lost_lease(tmp_path):
    with lock.hold(tmp_path, "train"):
        (tmp_path / "lock").unlink()
        with pytest.raises(LeaseLostError, match="no longer locked"):
            lock.check(tmp_path)


def test_remains_of_killed_attempts_are_removed_and_living_ones_left(tmp_path):
    for name, changes in (("dead.new", DEAD), ("dead.claim", DEAD), ("living.new", {}), ("far.new", ELSEWHERE)):
        left_by(tmp_path, **changes)
        (tmp_path / "lock").rename(tmp_path / f".lock-{name}")
    with lock.hold(tmp_path, "train"):
        assert names(tmp_path) == [".lock-far.new", ".lock-living.new", "lock"]


def test_a_claim_left_by_a_killed_process_is_taken_over(tmp_path):
    left_by(tmp_path, **DEAD)
    claim = tmp_path / lock._read(tmp_path / "lock").claim
    claim.write_bytes(json.dumps(json.loads((tmp_path / "lock").read_text()) | {"token": "other"}).encode())
    with lock.hold(tmp_path, "train"):
        assert names(tmp_path) == ["lock"]


def test_without_links_exclusive_creation_serves(tmp_path, monkeypatch):
    def link(*_):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", link)
    with lock.hold(tmp_path, "train"):
        with pytest.raises(BusyError), lock.hold(tmp_path, "train"):
            pass
        assert names(tmp_path) == ["lock"]
    assert names(tmp_path) == []


def test_a_link_whose_answer_was_lost_is_recognised(tmp_path, monkeypatch):
    link = os.link

    def twice(source, target):
        link(source, target)
        link(source, target)  # as a server is asked again

    monkeypatch.setattr(os, "link", twice)
    with lock.hold(tmp_path, "train"):
        pass
    assert names(tmp_path) == []


def test_never_two_at_once(tmp_path):
    """Six processes count to 25 each; a lost count or a folder that is there already would show two inside."""
    (tmp_path / "count").write_text("0")
    children = [process(COUNTER, tmp_path / "run", 25) for _ in range(6)]
    for child in children:
        _, errors = child.communicate(timeout=100)
        assert child.returncode == 0, errors
    assert (tmp_path / "count").read_text() == "150"
    assert not (tmp_path / "run").exists() or names(tmp_path / "run") == []


def test_of_many_that_take_over_a_stale_lock_one_wins(tmp_path):
    """Eight processes race for 20 locks, each left by a killed one; the winner holds it until all have tried."""
    racers = [process(RACER) for _ in range(8)]
    try:
        for number in range(20):
            folder = tmp_path / str(number)
            folder.mkdir()
            left_by(folder, **DEAD)
            for racer in racers:
                racer.stdin.write(f"{folder}\n")
                racer.stdin.flush()
            answers = [racer.stdout.readline() for racer in racers]
            assert sorted(answers) == ["busy\n"] * 7 + ["held\n"], number
            winner = racers[answers.index("held\n")]
            assert json.loads((folder / "lock").read_text())["pid"] == winner.pid
            assert names(folder) == ["lock"]
            winner.stdin.write("\n")
            winner.stdin.flush()
            assert winner.stdout.readline() == "given back\n"
            assert names(folder) == []
    finally:
        ended = [(racer.communicate(timeout=30)[1], racer.returncode) for racer in racers]
    assert ended == [("", 0)] * 8


def test_a_lock_is_waited_for_where_that_is_asked_for(tmp_path, keeper, monkeypatch):
    monkeypatch.setattr(lock, "RENEWED", 0.05)
    with lock.wait_for_leases(0.2), pytest.raises(BusyError), lock.hold(tmp_path / "run", "test"):
        pass
    threading.Timer(0.3, keeper.kill).start()
    with lock.wait_for_leases(60), lock.hold(tmp_path / "run", "test"):
        keeper.wait()
    with pytest.raises(BusyError), lock.hold(tmp_path / "run", "one"), lock.hold(tmp_path / "run", "two"):
        pass  # outside of the block nothing is waited for


def test_torch_is_not_needed():
    script = "import sys; import training.storage.lock, training.executors.parent; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": str(ROOT)}).returncode == 0


def test_a_holder_is_described():
    holder = lock.Holder("h", "m", 123, "", "train", "2024-05-01 12:00:03", "")
    assert str(dataclasses.replace(holder, pid=7)) == "train (pid 7 on host h, since 2024-05-01 12:00:03)"
