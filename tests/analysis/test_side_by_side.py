"""Pieces measured side by side: the same answers to the bit as one by one, in processes and on Ray."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from analysis import command, runner, side_by_side, store
from analysis.runner import Plan
from analysis.study import Piece
from analysis.subjects import Limits, Own, Run
from tests.analysis.helpers import assert_same, plan
from tests.training.executors.test_processes import wait_until
from training.executors import ray_pool
from training.executors.pool import Pool
from training.executors.pools import Placement
from training.executors.process_pool import ProcessPool
from training.executors.ray_pool import Cluster, RayPool

pytestmark = pytest.mark.usefixtures("forked_workers")

QUESTIONS: dict[str, dict[str, Any]] = {  # a chain of pieces, and a piece for each client
    "curvature": {"rounds": "all", "limit": 100},
    "local_global": {"rounds": "last", "limit": 100},
    "interpolation": {"rounds": "last", "limit": 100, "steps": 3},
}


@pytest.fixture(scope="module")
def run(make_run: Callable[..., Run]) -> Run:
    return make_run()


@pytest.fixture(scope="module")
def serial(run: Run, tmp_path_factory: pytest.TempPathFactory) -> list[store.Answer]:
    """The answers, measured one by one."""
    out = tmp_path_factory.mktemp("serial")
    return [store.read(runner.carry_out(one)) for one in make_plans(run, out)]


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPool]:
    """Two processes for the whole module: starting them takes seconds."""
    pool = ProcessPool(2)
    yield pool
    pool.close()


def make_plans(run: Run, out: Path) -> list[Plan]:
    return [plan(name, [run], out, **settings) for name, settings in QUESTIONS.items()]


def measure(plans: Sequence[Plan], pool: Pool, monkeypatch: pytest.MonkeyPatch) -> list[store.Answer]:
    """Carry plans out with workers that run already, and read the answers."""
    monkeypatch.setattr(Placement, "open", lambda self, most: pool)
    monkeypatch.setattr(pool, "close", lambda: None)
    return list(map(store.read, side_by_side.carry_out_all(plans, Placement(), lambda one: lambda done, total: None)))


def test_processes_find_the_same_although_one_is_killed(
    run: Run, serial: list[store.Answer], processes: ProcessPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = list(processes.workers)

    def kill() -> None:
        wait_until(lambda: any(worker.index is not None for worker in list(processes.workers)))
        next(worker for worker in list(processes.workers) if worker.index is not None).process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    found = measure(make_plans(run, tmp_path), processes, monkeypatch)
    killer.join()
    assert len(set(first) - set(processes.workers)) == 1
    for one, other in zip(found, serial, strict=True):
        assert_same(one, other)
    assert not list(tmp_path.rglob(".*"))  # no piece is left behind


def test_kept_pieces_are_not_measured_again(
    run: Run, serial: list[store.Answer], processes: ProcessPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = make_plans(run, tmp_path)[0]
    kept = planned.pieces[0]
    runner.save_piece(planned, kept, runner.measure_piece(planned, kept, [], print))
    given: list[Piece] = []
    make = side_by_side.make_task

    def spy(progress: runner.PlanProgress, piece: Piece) -> side_by_side.PieceTask:
        given.append(piece)
        return make(progress, piece)

    monkeypatch.setattr(side_by_side, "make_task", spy)
    assert_same(measure([planned], processes, monkeypatch)[0], serial[0])
    assert given == list(planned.pieces[1:])  # each after the one before
    assert measure([plan("curvature", [run], tmp_path, **QUESTIONS["curvature"])], processes, monkeypatch)
    assert given == list(planned.pieces[1:])  # the answer is there


def test_an_error_of_a_piece_is_raised_here(
    run: Run, processes: ProcessPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan("curvature", [run], tmp_path)
    monkeypatch.setattr(run, "opening", side_by_side.Opening(partial(Run, tmp_path / "nowhere"), Limits()))
    with pytest.raises(ValueError, match="nowhere: not a run directory"):
        measure([planned], processes, monkeypatch)


def test_the_command_chooses_processes_for_wide_and_long_work(run: Run, tmp_path: Path) -> None:
    chain, wide, _ = make_plans(run, tmp_path)
    assert side_by_side.measure_speedup([chain]) == 1.0
    assert side_by_side.measure_speedup([wide]) > 2.0
    assert command.choose_backend([chain], 1000.0, 2) == "serial"
    assert command.choose_backend([wide], 1000.0, 2) == "processes"
    assert command.choose_backend([wide], 10.0, 2) == "serial"
    assert command.choose_backend([wide], 1000.0, 1) == "serial"
    own = Own("own", tmp_path, run.model, run.point(0), {"train": run.examples("train")}, "")
    assert command.choose_backend([plan("curvature", [own], tmp_path)], 1000.0, 2) == "serial"  # only here


def test_the_longest_chain_starts_first(run: Run, tmp_path: Path) -> None:
    chain = make_plans(run, tmp_path)[0]
    lengths = side_by_side.find_chains(chain)
    passes = [piece.passes for piece in chain.pieces]
    assert [lengths[piece] for piece in chain.pieces] == [sum(passes[place:]) for place in range(len(passes))]


@pytest.fixture(scope="module")
def actors() -> Iterator[RayPool]:
    """Ray as the command starts it, with two actors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONWARNINGS", "ignore")
        pool = RayPool(Cluster(), 2)
        yield pool
        pool.close()
        import ray

        ray.shutdown()


def test_ray_finds_the_same_although_an_actor_is_killed(
    run: Run, serial: list[store.Answer], actors: RayPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Placement, "open", lambda self, most: actors)
    monkeypatch.setattr(actors, "close", lambda: None)
    first = list(actors.workers)

    def kill() -> None:
        wait_until(lambda: any(worker.index is not None for worker in list(actors.workers)))
        mine = psutil.Process().children(recursive=True)
        os.kill(next(one.pid for one in mine if one.cmdline()[0].startswith("ray::_Server")), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    studies = list(QUESTIONS)
    settings = [f"{study}.{key}={value}" for study, own in QUESTIONS.items() for key, value in own.items()]
    console = Console(file=io.StringIO())
    command.analyze([run], studies, settings, console=console, out=tmp_path, backend="ray")
    killer.join()
    assert len(set(first) - set(actors.workers)) == 1
    for study, other in zip(studies, serial, strict=True):
        assert_same(store.read(next((tmp_path / study).glob("*.h5"))), other)


def test_ray_started_by_us_is_quiet_and_on_this_machine_alone(
    actors: RayPool, capfd: pytest.CaptureFixture[str]
) -> None:
    import ray

    mine = {process.pid for process in psutil.Process().children(recursive=True)}
    listening = [one for one in psutil.net_connections("tcp") if one.status == "LISTEN" and one.pid in mine]
    assert len(listening) > 3
    assert {one.laddr.ip.removeprefix("::ffff:") for one in listening} == {"127.0.0.1"}
    assert ray.cluster_resources()["object_store_memory"] <= ray_pool.STORE
    assert capfd.readouterr().err == ""
