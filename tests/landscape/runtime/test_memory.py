"""Kept graphs share what is free, and freed memory is used again."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from landscape import Objective, eigenpairs
from landscape.curvature.hessian import HessianOperator
from landscape.runtime import memory
from landscape.runtime.machine import Memory
from landscape.runtime.memory import LEDGER, Ledger, allowance, parse_bytes

GB = 2**30
CHUNKS = 24


@dataclass
class Pretended:
    """A machine whose free memory a test decides, less what kept graphs hold."""

    total: int = 24 * GB
    free: Callable[[], int] = lambda: 16 * GB
    reads: int = field(default=0)

    def memory(self) -> Memory:
        self.reads += 1
        return Memory(self.total, self.free())


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    gc.collect()  # operators of other tests
    machine = Pretended()
    monkeypatch.setattr(memory, "MACHINE", machine)
    return machine


def small(**options: object) -> Objective:
    """A problem of 24 equal chunks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    data = torch.randn(4 * CHUNKS, 5).double(), torch.arange(4 * CHUNKS) % 3
    return Objective(model, data, chunk_size=4, **options)  # type: ignore[arg-type]


def hessian(**options: object) -> HessianOperator:
    objective = small(**options)
    return objective.hessian(objective.theta)


@pytest.fixture(scope="module")
def each() -> int:
    """Bytes of one chunk's graph."""
    return hessian(memory="1G").graph_bytes // CHUNKS


def used() -> int:
    """What the system would see: graphs that are there."""
    return sum(account.held for account in LEDGER._accounts)


def kept(operator: HessianOperator) -> int:
    return len(operator._kept)


def test_a_quarter_of_what_is_free_is_taken_unasked(pretend: Pretended) -> None:
    assert allowance() == 4 * GB
    pretend.free = lambda: 4 * GB
    assert allowance() == 1 * GB  # the reserve is an eighth of 24 GB
    pretend.free = lambda: 3 * GB + 100
    assert allowance() == 100
    pretend.free = lambda: 2 * GB
    assert allowance() == 0


def test_graphs_that_fit_are_kept_and_counted(pretend: Pretended, each: int) -> None:
    operator = hessian()
    assert (kept(operator), operator.engine) == (CHUNKS, "retained")
    assert LEDGER.held() == operator.graph_bytes == CHUNKS * each


@pytest.mark.parametrize("workers", [1, 2])
def test_free_memory_that_falls_between_chunks_ends_the_keeping(pretend: Pretended, each: int, workers: int) -> None:
    """Somebody else takes the machine's memory while graphs are built."""
    pretend.free = lambda: 16 * GB if pretend.reads < 8 else 3 * GB
    operator = hessian(workers=workers)
    assert kept(operator) == 7
    assert LEDGER.held() == operator.graph_bytes == 7 * each


def test_memory_is_read_once_per_kept_graph_and_not_by_products(pretend: Pretended) -> None:
    operator = hessian()
    assert pretend.reads == CHUNKS
    operator.matvec(torch.ones(operator.size, dtype=torch.float64))
    assert pretend.reads == CHUNKS


def test_operators_of_a_process_share_what_is_free(pretend: Pretended, each: int) -> None:
    """Alone an operator takes a quarter. A second one beside it finds that taken, and a third too."""
    pretend.total = 40 * each
    pretend.free = lambda: 40 * each - used()
    first, second, third = hessian(), hessian(), hessian()
    assert [kept(one) for one in (first, second, third)] == [10, 0, 0]
    assert second.engine == "recompute"


@pytest.mark.parametrize("graphs", [0, 3])
def test_no_bit_depends_on_how_many_graphs_fit(pretend: Pretended, each: int, graphs: int) -> None:
    roomy = hessian(memory="1G")
    tight = hessian(memory=(CHUNKS + graphs) * each)  # a budget is for all of a process
    assert (kept(roomy), kept(tight)) == (CHUNKS, graphs)
    assert roomy.hint is not None
    assert tight.hint is not None
    assert torch.equal(roomy.hint, tight.hint)
    found = [eigenpairs(operator, k=2) for operator in (roomy, tight)]
    assert np.array_equal(found[0].values, found[1].values)
    assert torch.equal(found[0].vectors, found[1].vectors)


def test_processes_side_by_side_leave_room_for_each_other(pretend: Pretended, each: int) -> None:
    """Ledgers of their own, one machine: everyone gets a quarter of what the others left, and a reserve stays."""
    machine = 1000 * each
    ledgers = [Ledger() for _ in range(12)]
    pretend.total = machine
    pretend.free = lambda: machine - sum(ledger.held() for ledger in ledgers)
    taken = []
    accounts = [ledger.open() for ledger in ledgers]
    for ledger, account in zip(ledgers, accounts, strict=True):
        while ledger.promise(account, each):
            account.hold(each)
        taken.append(account.held // each)
    assert taken[:3] == [250, 187, 140]
    assert pretend.free() >= machine // 8
    assert taken[-1] == 0


def test_an_operator_that_dies_gives_its_memory_back(pretend: Pretended, each: int) -> None:
    budget = 10 * each
    first = hessian(memory=budget)
    assert kept(first) == 10
    assert kept(hessian(memory=budget)) == 0
    del first
    assert LEDGER.held() == 0  # at once, without the collector
    assert kept(hessian(memory=budget)) == 10


def test_operators_that_die_leave_no_tensor_behind() -> None:
    """Autograd's own graph is no Python object: a cycle in it is never collected, and only memory tells."""
    wide = 1009  # a size that nothing else has
    model = nn.Sequential(nn.Linear(3, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 2))
    objective = Objective(model, (torch.randn(4, 3), torch.tensor([0, 1, 1, 0])), loss=nn.functional.cross_entropy)

    def count_large() -> int:
        gc.collect()
        return sum(1 for one in gc.get_objects() if type(one) is torch.Tensor and one.numel() == wide * wide)

    counts = []
    for _ in range(3):
        objective.hessian(objective.theta) @ objective.theta
        counts.append(count_large())
    assert counts[0] == counts[1] == counts[2]


def test_an_operator_in_a_cycle_is_collected_before_graphs_are_refused(pretend: Pretended, each: int) -> None:
    gc.disable()
    try:
        lost = hessian(memory=10 * each)
        lost.itself = lost  # type: ignore[attr-defined]
        del lost
        assert LEDGER.held() == 10 * each
        assert kept(hessian(memory=10 * each)) == 10
    finally:
        gc.enable()


def test_a_budget_is_for_the_process_and_lifts_the_share(pretend: Pretended, each: int) -> None:
    pretend.total = 20 * each
    pretend.free = lambda: 20 * each - used()
    large = hessian(memory=18 * each)
    assert kept(large) == 18
    assert kept(hessian(memory=18 * each)) == 0


def test_no_budget_is_larger_than_what_is_free(pretend: Pretended, each: int) -> None:
    pretend.free = lambda: 5 * each - used()
    assert kept(hessian(memory="100G")) == 5


def test_the_retained_engine_keeps_all_and_is_counted(pretend: Pretended, each: int) -> None:
    pretend.free = lambda: 0
    objective = small()
    operator = objective.hessian(objective.theta, "retained")
    assert kept(operator) == CHUNKS
    assert LEDGER.held() == CHUNKS * each
    assert kept(hessian()) == 0


def test_what_is_promised_is_no_longer_free(pretend: Pretended) -> None:
    """Graphs that are being built by other threads do not show in the system's numbers yet."""
    ledger = Ledger()
    account = ledger.open(budget=100)
    pretend.free = lambda: 50
    assert [ledger.promise(account, 20) for _ in range(3)] == [True, True, False]
    assert (account.promised, account.held, ledger.held()) == (40, 0, 40)


def test_threads_never_promise_more_than_the_budget(pretend: Pretended) -> None:
    ledger = Ledger()
    accounts = [ledger.open(budget=100) for _ in range(8)]
    pretend.free = lambda: time.sleep(1e-4) or 10**6  # type: ignore[func-returns-value]

    def take(index: int) -> None:
        while ledger.promise(accounts[index], 3):
            accounts[index].hold(3)

    threads = [threading.Thread(target=take, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.held() == 99


def test_a_failed_operator_holds_nothing(pretend: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    build, built = HessianOperator._build, []

    def fail_at_the_fifth(self: HessianOperator, *given: object) -> object:
        built.append(LEDGER.held())
        if len(built) == 5:
            raise RuntimeError("no")
        return build(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(HessianOperator, "_build", fail_at_the_fifth)
    with pytest.raises(RuntimeError, match="no"):
        hessian(workers=1)
    gc.collect()
    assert built[-1] > 0
    assert LEDGER.held() == 0


@pytest.mark.parametrize(
    ("text", "size"), [("8G", 8 * GB), ("512M", 2**29), (7, 7), ("1.5 KiB", 1536), ("2tb", 2**41), ("0", 0)]
)
def test_budgets_are_written_with_units(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


COUNT = """
import resource, torch
from landscape.runtime.memory import keep_freed
{call}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(3_000_000) + torch.ones(3_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def output(code: str, **environment: str) -> str:
    own = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**own, **environment}
    )
    return done.stdout.strip()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told")
def test_pages_are_not_cleared_again_and_again() -> None:
    kept = int(output(COUNT.format(call="assert keep_freed()")))
    assert kept < 2000  # 60 arrays of 12 MB would be 180,000 pages


def test_a_tuned_allocator_is_left_alone() -> None:
    code = "from landscape.runtime.memory import keep_freed; print(keep_freed())"
    assert output(code, MALLOC_ARENA_MAX="4") == "False"
    assert output(code, GLIBC_TUNABLES="glibc.malloc.arena_max=4") == "False"
