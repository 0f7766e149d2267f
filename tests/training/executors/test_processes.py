"""Worker processes: they are replaced when they die, with the same bits; errors arrive; nothing is left behind."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.training.federations import federation, play
from training import config
from training.clients.local_training import DivergenceError
from training.clients.trainer import LocalTrainer
from training.engine.federation import Federation
from training.engine.run import train
from training.engine.state import State
from training.executors import choice, process_pool
from training.executors import pool as pool_module
from training.executors import processes as processes_module
from training.executors.base import Broadcast, Executor, Participant
from training.executors.pool import ATTEMPTS
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.worker import SharedVectors, Worker

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def workers() -> Iterator[Processes]:
    """Two processes for the whole module: starting them takes seconds."""
    fed = federation()
    executor = Processes(fed.trainer, workers=2)
    wait_for_start(executor, fed)
    yield executor
    executor.close()


def wait_for_start(executor: Processes, fed: Federation) -> None:
    """Train until every worker has started, also those that replace killed ones."""
    while not all(worker.ready for worker in executor.pool.workers):
        play(fed, 1, executor)


def digest(state: State) -> str:
    """SHA-256 of every vector of a state."""
    found = hashlib.sha256()
    for vector in [state.w, state.mean, state.statistics, *state.server.values()]:
        found.update(vector.numpy().tobytes())
    for client, vectors in sorted(state.clients.items()):
        found.update(str(client).encode())
        for name, vector in sorted(vectors.items()):
            found.update(name.encode() + vector.numpy().tobytes())
    return found.hexdigest()


def digests(fed: Federation, rounds: int, executor: Executor) -> list[str]:
    return [digest(state) for state, _, _ in play(fed, rounds, executor)]


def kill(worker: Worker) -> None:
    worker.process.kill()
    worker.process.join()


class Slow(nn.Module):
    """A perceptron that takes its time, so that it can be killed at work."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(0.01)
        return self.layer(inputs.flatten(1))


def slow(classes: int, channels: int, size: int) -> nn.Module:
    return Slow()


SLOW = {"name": "tests.training.executors.test_processes:slow"}


def test_a_worker_killed_in_the_middle_of_a_task_is_replaced(workers: Processes) -> None:
    fed = federation("scaffold", model=SLOW, rounds={"participants": 6})
    workers.assign(fed.trainer)
    state, found = fed.begin(), []
    for _ in range(3):
        killer = threading.Thread(target=kill_when_busy, args=(workers,))
        killer.start()
        state = fed.advance(state, workers)[0]
        killer.join()
        found.append(digest(state))
    assert found == digests(fed, 3, Serial(fed.trainer))


def test_workers_killed_while_idle_are_replaced(workers: Processes) -> None:
    fed = federation("scaffold", rounds={"participants": 6})
    workers.assign(fed.trainer)
    state, found = fed.begin(), []
    for first in (1, 0):  # one of them, then both
        for worker in workers.pool.workers[first:]:
            kill(worker)
        state = fed.advance(state, workers)[0]
        found.append(digest(state))
    assert found == digests(fed, 2, Serial(fed.trainer))


def test_workers_killed_while_starting_are_replaced() -> None:
    fed = federation("scaffold")
    executor = Processes(fed.trainer, 2)
    try:
        for worker in executor.pool.workers:
            assert not worker.ready
            kill(worker)
        assert digests(fed, 2, executor) == digests(fed, 2, Serial(fed.trainer))
    finally:
        executor.close()


def test_a_result_outlives_its_worker(workers: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is complete and not computed again; the next task is sent to a dead worker, and then to another."""
    fed = federation("scaffold", rounds={"participants": 6})
    workers.assign(fed.trainer)
    results = itertools.count()
    receive = Worker.receive

    def receive_and_kill(self: Worker) -> object:
        answer = receive(self)
        if answer is not None and next(results) in (2, 7):
            kill(self)
        return answer

    monkeypatch.setattr(Worker, "receive", receive_and_kill)
    assert digests(fed, 2, workers) == digests(fed, 2, Serial(fed.trainer))
    assert next(results) == 2 * 6


def test_a_task_that_was_sent_but_not_read_is_sent_again(workers: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation("scaffold", rounds={"participants": 6})
    workers.assign(fed.trainer)
    orders = itertools.count()
    send = Worker.send

    def send_and_kill(self: Worker, *arguments: object) -> None:
        killed = next(orders) in (0, 3)
        if killed:
            os.kill(self.process.pid or 0, signal.SIGSTOP)
        send(self, *arguments)  # type: ignore[arg-type]
        if killed:
            kill(self)

    monkeypatch.setattr(Worker, "send", send_and_kill)
    assert digests(fed, 1, workers) == digests(fed, 1, Serial(fed.trainer))
    assert next(orders) == 6 + 2


def test_workers_killed_after_an_aborted_round_are_replaced(workers: Processes) -> None:
    fed = federation("scaffold", model=SLOW, rounds={"participants": 6})
    workers.assign(fed.trainer)
    state = play(fed, 1)[0][0]
    state = dataclasses.replace(state, clients={k: {"control": torch.full((15,), torch.inf)} for k in range(7)})
    with pytest.raises(DivergenceError):
        fed.advance(state, workers)
    for worker in workers.pool.workers:
        kill(worker)
    assert digests(fed, 2, workers) == digests(fed, 2, Serial(fed.trainer))


def test_deaths_over_and_over_of_one_client_end_in_one_line(
    workers: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "ATTEMPTS", 2)
    fed = federation(model={"name": "tests.training.executors.test_processes:deadly"})
    workers.assign(fed.trainer)
    message = r"2 worker processes died while training client \d \(exit code -9\): out of memory\? Use fewer --workers"
    with pytest.raises(ConnectionError, match=f"^{message}$"):
        fed.advance(fed.begin(), workers)


def test_deaths_over_and_over_at_the_start_end_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    started = itertools.count()
    start = Worker.start

    def start_and_kill() -> Worker:
        next(started)
        worker = start()
        kill(worker)
        return worker

    monkeypatch.setattr(Worker, "start", start_and_kill)
    fed = federation()
    executor = Processes(fed.trainer, 2)
    try:
        message = rf"{ATTEMPTS} worker processes died while starting \(exit code -9\): in a script, train below"
        with pytest.raises(ConnectionError, match=message):
            fed.advance(fed.begin(), executor)
    finally:
        executor.close()
    assert next(started) == 2 + ATTEMPTS - 1


class Deadly(nn.Module):
    """A perceptron that ends its process in training, as the kernel does when memory runs out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        if multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(inputs.flatten(1))


def deadly(classes: int, channels: int, size: int) -> nn.Module:
    return Deadly()


def kill_when_busy(executor: Processes) -> None:
    """Kill a worker once it has been at work for a moment."""
    wait_until(lambda: any(worker.index is not None for worker in list(executor.pool.workers)))
    time.sleep(0.02)
    for worker in list(executor.pool.workers):
        if worker.index is not None:
            worker.process.kill()
            return


def wait_until(ready: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.002)


SCRIPT = """
import sys
from pathlib import Path
from training import config
from training.engine.run import train
if __name__ == "__main__":
    train(config.load("recipe.toml")[0], Path(sys.argv[1]), name="run", backend=sys.argv[2], workers=2)
"""
RECIPE = """
seed = 5
model.name = "tests.training.executors.test_processes:slow"
algorithm.name = "scaffold"
data = {name = "synthetic", examples = 200, test_examples = 20, shape = [1, 2, 2], classes = 3}
partition = {name = "dirichlet_total", clients = 8, alpha = 0.5}
local = {batch_size = 8, epochs = 2}
rounds = {count = 6, participants = 4}
checkpoints = {every = 1, keep_locals = "all", keep_clients = "all"}
"""


def start_script(folder: Path, out: str, backend: str) -> subprocess.Popen[bytes]:
    """Train RECIPE in a process group of its own."""
    (folder / "script.py").write_text(SCRIPT)
    (folder / "recipe.toml").write_text(RECIPE)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "script.py", out, backend]
    return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)


def members(group: int) -> dict[int, str]:
    """Living processes of a group: id -> command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if fields[2] == str(group) and fields[0] != "Z":
                found[int(path.name)] = (path / "cmdline").read_text()
        except OSError:
            pass  # it has ended just now
    return found


def fingerprints(run: Path) -> dict[str, str]:
    """SHA-256 of every file of every checkpoint."""
    files = sorted(run.glob("checkpoints/*/*.safetensors"))
    return {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")


def test_workers_killed_at_random_moments_change_no_checkpoint(
    tmp_path: Path, workers: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    recipe = config.load(tmp_path / "recipe.toml")[0]
    expected = fingerprints(train(recipe, tmp_path / "calm", backend="serial"))
    assert len(expected) > 3 * recipe.rounds.count

    def assign(trainer: LocalTrainer, count: int) -> Processes:
        workers.assign(trainer)
        return workers

    monkeypatch.setattr(choice, "Processes", assign)
    monkeypatch.setattr(workers, "close", lambda: None)
    killer = Killer(workers)
    killer.start()
    try:
        run = train(recipe, tmp_path / "stormy", backend="processes", workers=2, on_round=killer.begin_round)
    finally:
        killer.over.set()
        killer.join()
    assert killer.kills >= 3
    assert fingerprints(run) == expected


class Killer(threading.Thread):
    """Kills workers at random moments, at work, idle and starting, but fewer than would make the executor give up."""

    def __init__(self, executor: Processes) -> None:
        super().__init__()
        self.executor, self.over, self.kills = executor, threading.Event(), 0
        self.starts = self.left = ATTEMPTS - 1  # workers that may still be killed while starting, and in this round
        self.used, self.lock = 0, threading.Lock()

    def begin_round(self, record: object) -> None:
        with self.lock:  # an idle worker killed after one round dies, for the executor, over a client of the next one
            self.left, self.used = ATTEMPTS - 1 - self.used, 0

    def run(self) -> None:
        draw = random.Random(0)
        while not self.over.wait(draw.uniform(0, 0.5)):
            worker = draw.choice(list(self.executor.pool.workers))
            with self.lock:
                if self.left and (worker.ready or self.starts):
                    self.left -= 1
                    self.used += 1
                    self.starts -= not worker.ready
                    self.kills += 1
                    worker.process.kill()


@linux
@pytest.mark.parametrize("moment", ["starting", "training"])
def test_no_process_outlives_a_killed_parent(tmp_path: Path, moment: str) -> None:
    child = start_script(tmp_path, "out", "processes")
    metrics = tmp_path / "out" / "run" / "metrics.jsonl"
    try:
        if moment == "starting":
            wait_until(lambda: sum("spawn_main" in command for command in members(child.pid).values()) == 2)
        else:
            wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0)
        child.kill()
        assert child.wait() == -signal.SIGKILL
        wait_until(lambda: not members(child.pid))
    finally:
        if members(child.pid):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_an_aborted_round_leaves_nothing_behind(workers: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation("scaffold", rounds={"participants": 7})
    workers.assign(fed.trainer)
    wait_for_start(workers, fed)
    start, message = fed.begin().w, fed.method.make_message(fed.begin().w, fed.begin().server)
    cohort = [
        Participant(client, {"control": torch.zeros_like(start)}) for client in (2, 4, 1, 3, 5, 0, 6)
    ]  # longest first
    with monkeypatch.context() as patch:
        patch.setattr(
            process_pool, "wait", lambda pipes, seconds: pipes[:1] if pipes[0].poll(60) else pytest.fail("late")
        )
        round = workers.run(Broadcast(start, message, start[:0], lr=0.1, round=0), cohort)
        assert next(round).client == 2
        round.close()  # type: ignore[attr-defined]
    assert all(worker.index is not None for worker in workers.pool.workers)  # they went on before the result was read
    assert digests(fed, 2, workers) == digests(fed, 2, Serial(fed.trainer))
    assert all(worker.index is None for worker in workers.pool.workers)


def test_of_several_divergent_clients_the_first_is_named(workers: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_for_all(pipes: list[Connection], seconds: float | None) -> list[Connection]:
        """Let every worker finish, then report the one that was started last."""
        busy = [worker.pipe for worker in workers.pool.workers if worker.index is not None or not worker.ready]
        assert all(pipe.poll(60) for pipe in busy)
        return busy[::-1]

    monkeypatch.setattr(process_pool, "wait", wait_for_all)
    fed = federation("scaffold", rounds={"participants": 7})
    workers.assign(fed.trainer)
    state = play(fed, 1)[0][0]
    for client in (2, 3, 5, 6):
        state.clients[client]["control"][:] = float("inf")
    for executor in (workers, Serial(fed.trainer)):
        with pytest.raises(DivergenceError, match="client 2 diverged") as caught:
            fed.advance(state, executor)
        assert (caught.value.round, caught.value.client, caught.value.lr) == (2, 2, 0.2)


class Failing(nn.Module):
    """A user's model with a mistake in it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(43))

    def forward(self, inputs: Tensor) -> Tensor:
        raise KeyError("no such layer")


def test_a_mistake_in_the_users_model_comes_back_with_its_place(workers: Processes) -> None:
    fed = federation()
    state = fed.begin()
    fed.trainer.model = Failing()
    workers.assign(fed.trainer)
    with pytest.raises(RuntimeError, match=r"(?s)client \d failed in a worker process.*in forward.*no such layer"):
        fed.advance(state, workers)


class Elsewhere(nn.Linear):
    """A model that pickles here and is not found there."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return __import__, ("no_such_module",)


def test_a_model_that_a_worker_cannot_load_is_an_error_and_no_death(workers: Processes) -> None:
    fed = federation()
    state = fed.begin()
    fed.trainer.model = Elsewhere(4, 3)
    workers.assign(fed.trainer)
    with pytest.raises(RuntimeError, match=r"(?s)a worker process cannot load the model.*no_such_module"):
        fed.advance(state, workers)
    assert all(worker.process.is_alive() for worker in workers.pool.workers)


def test_a_model_that_cannot_be_sent_is_refused(workers: Processes) -> None:
    class Local(nn.Linear):
        """Defined inside a function: pickle does not find it."""

    fed = federation()
    fed.trainer.model = Local(4, 3)
    with pytest.raises(ValueError, match=r"the model cannot be sent to other processes .*Local.*use serial"):
        workers.assign(fed.trainer)


def test_the_data_are_sent_once(workers: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation("scaffold", rounds={"participants": 7})
    workers.assign(fed.trainer)
    play(fed, 1, workers)
    sizes: list[int] = []
    send = Connection._send_bytes

    def spy(self: Connection, content: memoryview) -> None:
        sizes.append(len(content))
        send(self, content)

    monkeypatch.setattr(Connection, "_send_bytes", spy)
    play(fed, 2, workers)
    assert max(sizes) < 2048  # of orders that refer to shared memory sent before


def test_the_last_clients_start_longest_first(workers: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation("scaffold", rounds={"participants": 7})
    workers.assign(fed.trainer)
    order: list[int] = []
    send = Worker.send

    def spy(self: Worker, index: int, *others: object) -> None:
        order.append(index)
        send(self, index, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "send", spy)
    play(fed, 1, workers)
    assert order == [2, 4, 1, 3, 5, 0, 6]  # 12, 9, 7, 5, 4, 3 and 1 examples
    order.clear()
    monkeypatch.setattr(processes_module, "LAST", 2)
    play(fed, 1, workers)
    assert order == [0, 1, 2, 4, 3, 5, 6]


def test_shared_vectors_are_allocated_again_only_for_other_shapes() -> None:
    shared = SharedVectors()
    assert shared.write({"state": {"a": torch.ones(3)}})
    memory = shared.groups["state"]["a"]
    assert memory.is_shared()
    assert not shared.write({"state": {"a": torch.full((3,), 2.0)}})
    assert memory.tolist() == [2.0, 2.0, 2.0]
    assert shared.write({"state": {"a": torch.ones(4)}})
    assert memory.tolist() == [2.0, 2.0, 2.0]


def test_large_networks_have_the_same_bits_in_processes_and_from_a_file() -> None:
    """They compute at the vectors that were sent, wherever these lie in memory, and multiply by oneDNN."""
    recipe = {
        "data": {"name": "synthetic", "examples": 240, "test_examples": 0, "shape": [1, 28, 28]},
        "model": {"name": "fsa_cnn"},
        "partition": {"clients": 3},
        "algorithm": {"name": "fedsam", "rho": 0.1},
        "local": {"batch_size": 32},
        "rounds": {"participants": 3, "count": 2},
        "evaluation": {"every": 2},
    }
    fed = Federation(config.validate(recipe))
    serial = play(fed, 2)
    executor = Processes(fed.trainer, workers=2)
    spread = play(fed, 2, executor)
    executor.close()
    assert torch.equal(serial[-1][0].w, spread[-1][0].w)
    first = serial[0][0]
    moved = torch.empty(len(first.w) + 1)[1:].copy_(first.w)  # as read from a file, at any address
    resumed = play(fed, 1, state=dataclasses.replace(first, w=moved))
    assert torch.equal(serial[-1][0].w, resumed[-1][0].w)
