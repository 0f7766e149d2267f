"""A pool of workers, here in this process: dependencies, deaths, order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from training.executors.pool import ATTEMPTS, Pool, Task, TaskSet, Worker, WorkerDiedError, answer_task, yield_in_order
from training.executors.pools import Placement


class Here(Worker):
    """A worker that computes in this process when it is asked for the answer."""

    def __init__(self, pool: Herd) -> None:
        self.pool, self.task = pool, None

    task: Task | None

    def give(self, index: int, task: Task) -> None:
        self.index, self.task = index, task

    def receive(self) -> object:
        task, started = self.task, self.ready
        if started and self.index in self.pool.deadly:
            death = self.pool.deadly[self.index]
            if death == "once":
                del self.pool.deadly[self.index]
            raise WorkerDiedError("exit code 9", blameless=death == "blameless")
        self.ready, self.index, self.task = True, None, None
        return None if task is None else answer_task(task, {})

    def end(self) -> None:
        self.pool.ended += 1


class Herd(Pool):
    """Workers in this process; of those with a task, the one that got the last is heard first."""

    def __init__(self, workers: int, deadly: dict[int, str] | None = None) -> None:
        self.deadly, self.ended, self.waits = deadly or {}, 0, 0
        super().__init__(workers)

    def _start(self) -> Worker:
        return Here(self)

    def _wait(self, seconds: float | None) -> Sequence[Worker]:
        self.waits += 1
        if self.waits > 1000:
            raise TimeoutError
        starting = [one for one in self.workers if not one.ready]
        busy = [one for one in self.workers if one.index is not None]
        return starting or sorted(busy, key=lambda one: one.index or 0)[-1:]


def make_work(count: int, seen: list[int], after: dict[int, list[int]] | None = None) -> TaskSet:
    def give(worker: Worker, index: int) -> None:
        seen.append(index)
        worker.give(index, lambda memory: 10 * index)

    return TaskSet(range(count), give, lambda index: f"at task {index}", after or {})


def test_results_come_in_order_although_tasks_end_in_another() -> None:
    ended = list(Herd(3).compute(make_work(7, [])))
    assert [index for index, _ in ended] != sorted(index for index, _ in ended)
    assert list(yield_in_order(iter(ended))) == [10 * index for index in range(7)]


def test_a_task_starts_when_the_caller_has_seen_what_it_comes_after() -> None:
    given: list[int] = []
    after = {0: [3], 1: [0], 4: [1, 2]}
    seen: set[int] = set()
    for index, _ in Herd(3).compute(make_work(5, given, after)):
        assert seen.issuperset(after.get(index, []))
        seen.add(index)
    assert sorted(given) == [0, 1, 2, 3, 4]
    assert all(given.index(late) > given.index(one) for late, some in after.items() for one in some)


def test_a_dead_worker_is_replaced_and_its_task_given_again() -> None:
    given: list[int] = []
    pool = Herd(2, {1: "once"})
    assert sorted(pool.compute(make_work(4, given))) == [(index, 10 * index) for index in range(4)]
    assert sorted(given) == [0, 1, 1, 2, 3]
    pool.close()
    assert pool.ended == 2


def test_the_pool_gives_up_after_some_deaths_over_one_task() -> None:
    given: list[int] = []
    with pytest.raises(ConnectionError, match=rf"^{ATTEMPTS} worker processes died while at task 1 \(exit code 9\)"):
        list(Herd(1, {1: "always"}).compute(make_work(4, given)))
    assert given.count(1) == ATTEMPTS


def test_a_task_is_not_blamed_for_a_lost_node() -> None:
    given: list[int] = []
    pool = Herd(1, {0: "blameless"})
    outcomes = pool.compute(make_work(1, given))
    with pytest.raises(TimeoutError):  # it would go on as long as nodes are lost
        next(outcomes)
    assert given.count(0) > ATTEMPTS


def test_the_first_error_in_order_is_raised_in_its_turn() -> None:
    outcomes = [(2, ValueError("second")), (1, ValueError("first")), (0, "result")]
    results = yield_in_order(iter(outcomes))
    assert next(results) == "result"
    with pytest.raises(ValueError, match="first"):
        next(results)


def test_errors_are_sent_as_text() -> None:
    class StrangeError(ValueError):
        def __init__(self, one: int, other: int):
            super().__init__(f"{one} and {other}")

    def fail(error: Exception) -> object:
        def task(memory: dict[str, object]) -> None:
            raise error

        return answer_task(task, {})

    found = fail(StrangeError(1, 2))
    assert type(found) is ValueError
    assert str(found) == "1 and 2"
    assert type(fail(PermissionError("no"))) is OSError
    other = fail(KeyError("layer"))
    assert type(other) is RuntimeError
    assert "Traceback" in str(other)


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(ValueError, match="backend"):
        Placement("cloud")
    with pytest.raises(ValueError, match="workers"):
        Placement("processes", 0)
