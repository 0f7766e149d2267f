"""SIGTERM: the last finished round is stored, workers end, the exit code is 75, and resuming changes no bit."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from torch import Tensor, nn

from landscape.runtime import termination
from landscape.runtime.termination import TERMINATED, Terminated
from tests.training.executors.test_processes import fingerprints, members, start_script, wait_until
from training import config
from training.engine.run import train
from training.storage import metrics, run_directory
from training.storage.metrics import Record

CALLS = {"left": -1}  # forward passes until SIGTERM; negative: never


class Fragile(nn.Module):
    """A perceptron whose process is asked to end in the middle of a round."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        CALLS["left"] -= 1
        if CALLS["left"] == 0:
            signal.raise_signal(signal.SIGTERM)
        found: Tensor = self.layer(inputs.flatten(1))
        return found


def fragile(classes: int, channels: int, size: int) -> nn.Module:
    return Fragile()


def make_recipe(every: int = 4) -> config.Recipe:
    return config.validate(
        {
            "data": {"name": "synthetic", "examples": 60, "test_examples": 20, "shape": [1, 2, 2], "classes": 3},
            "model": {"name": "tests.training.engine.test_termination:fragile"},
            "algorithm": {"name": "scaffold"},
            "partition": {"clients": 3},
            "rounds": {"count": 10, "participants": 3},
            "checkpoints": {"every": every, "keep_clients": "all"},
        }
    )


def test_a_terminated_run_is_stored_and_resumes_to_the_bit(tmp_path: Path) -> None:
    recipe = make_recipe()
    calm = train(recipe, tmp_path / "calm", backend="serial")
    rounds: list[int] = []

    def watch(record: Record) -> None:
        rounds.append(record["round"])
        if record["round"] == 6:
            CALLS["left"] = 2

    with pytest.raises(Terminated) as caught:
        train(recipe, tmp_path / "stopped", backend="serial", on_round=watch)
    run = next((tmp_path / "stopped").iterdir())
    assert caught.value.code == TERMINATED == 75
    assert rounds[-1] == 6
    assert run_directory.checkpoint_rounds(run) == [0, 4, 6]
    assert len(metrics.read(run)) == 6
    assert not (run / "lock").exists()
    assert train(recipe, tmp_path / "stopped", backend="serial") == run
    assert fingerprints(run) == fingerprints(calm)  # the checkpoint of round 6 is gone again
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_request_between_rounds_waits_for_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = metrics.append

    def append_and_ask(run: Path, record: Record) -> None:
        signal.raise_signal(signal.SIGTERM)
        append(run, record)

    monkeypatch.setattr(metrics, "append", append_and_ask)
    with pytest.raises(Terminated):
        train(make_recipe(), tmp_path, backend="serial")
    run = next(tmp_path.iterdir())
    assert run_directory.checkpoint_rounds(run) == [0, 1]
    assert len(metrics.read(run)) == 1


def test_a_program_that_handles_the_signal_itself_keeps_its_handler() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with termination.listen():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_other_threads_do_not_touch_the_handler() -> None:
    found: list[object] = []

    def look() -> None:
        with termination.listen():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


def test_worker_processes_end_too(tmp_path: Path) -> None:
    child = start_script(tmp_path, "out", "processes")
    written = tmp_path / "out" / "run" / "metrics.jsonl"
    try:
        wait_until(lambda: written.exists() and written.stat().st_size > 0, 300)
        child.send_signal(signal.SIGTERM)
        assert child.wait() == TERMINATED
        wait_until(lambda: not members(child.pid))
    finally:
        if members(child.pid):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    run = tmp_path / "out" / "run"
    assert run_directory.checkpoint_rounds(run)[-1] == len(metrics.read(run)) > 0
    assert not (run / "lock").exists()
