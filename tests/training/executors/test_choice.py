"""Which executor a run gets: the one that was named, or the one that is fastest in a timed step."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.training.federations import federation, play
from training.clients.local_training import ClientResult, DivergenceError
from training.executors import choice
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.storage import run_directory


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "provenance.json").write_text('{"format": 1}')
    return tmp_path


def test_the_fastest_executor_is_chosen_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation()
    first = choice.open_executor("auto", fed.trainer, fed.recipe, 1, run, pytest.fail)
    chosen = run_directory.read_provenance(run)["backend"]
    assert chosen == first.name in ("serial", "vmap")
    other = {"serial": "vmap", "vmap": "serial"}[chosen]
    monkeypatch.setattr(choice, "find_fastest", lambda *_: other)
    assert choice.open_executor("auto", fed.trainer, fed.recipe, 1, run, pytest.fail).name == chosen
    said: list[str] = []
    assert choice.open_executor(other, fed.trainer, fed.recipe, 1, run, said.append).name == other
    assert said == [f"this run was started with {chosen}; results of {other} agree with it only up to rounding"]


@pytest.mark.parametrize(("seconds", "chosen"), [((1, 1.9), "vmap"), ((1, 2.5), "serial"), ((1000, 8000), "processes")])
def test_measured_seconds_decide(seconds: tuple[float, float], chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three clients of 2, 4 and 6 steps: alone 12 steps a round, together as many as the slowest takes."""
    fed = federation(sizes=(3, 7, 12), rounds={"count": 1})
    times = {"serial": seconds[0], "vmap": seconds[1]}
    monkeypatch.setattr(choice, "_time_step", lambda executor, trainer, clients: times[executor.name])
    assert choice.find_fastest(fed.trainer, fed.recipe, cores=2) == chosen


def test_measuring_takes_one_step_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation("scaffold", local={"steps": 50})
    steps: list[int] = []
    context = Serial.run

    def spy(self: Serial, *arguments: object) -> Iterator[ClientResult]:
        for result in context(self, *arguments):
            steps.append(result.steps)
            yield result

    monkeypatch.setattr(Serial, "run", spy)
    assert choice.find_fastest(fed.trainer, fed.recipe, cores=1) in ("serial", "vmap")
    assert steps == [1, 1]
    assert torch.equal(play(fed, 1)[0][0].w, play(federation("scaffold", local={"steps": 50}), 1)[0][0].w)


def test_a_model_that_cannot_be_stacked_is_not_an_obstacle() -> None:
    fed = federation(sizes=(6, 7, 10), model={"name": "tests.training.federations:normed"})
    assert choice.find_fastest(fed.trainer, fed.recipe, cores=1) == "serial"
    with pytest.raises(ValueError, match="backend vmap: BatchNorm"):
        Stacked(fed.trainer)


@pytest.mark.parametrize(
    ("backend", "workers", "message"),
    [("proceses", None, "backend: unknown 'proceses'; did you mean 'processes'"), ("serial", 0, "workers must be")],
)
def test_unknown_backends_and_workers_are_refused(backend: str, workers: int | None, message: str, run: Path) -> None:
    fed = federation()
    with pytest.raises(ValueError, match=message):
        choice.open_executor(backend, fed.trainer, fed.recipe, workers, run, pytest.fail)


def test_one_worker_needs_no_process(run: Path) -> None:
    fed = federation()
    assert isinstance(choice.open_executor("processes", fed.trainer, fed.recipe, 1, run, pytest.fail), Serial)


@pytest.mark.parametrize(("workers", "expected"), [(2, 2), (8, 3), (None, 3)])
def test_no_more_processes_than_participants(
    workers: int | None, expected: int, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(choice, "Processes", lambda trainer, workers: asked.append(workers))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    fed = federation(rounds={"participants": 3})
    choice.open_executor("processes", fed.trainer, fed.recipe, workers, run, pytest.fail)
    assert asked == [expected]


def test_a_first_step_that_diverges_is_left_to_the_first_round(run: Path) -> None:
    fed = federation("fedsam", algorithm={"rho": 1e200})
    executor = choice.open_executor("auto", fed.trainer, fed.recipe, 1, run, pytest.fail)
    with pytest.raises(DivergenceError, match="diverged in round 1, local step 1"):
        fed.advance(fed.begin(), executor)
