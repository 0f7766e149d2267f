"""Run independent torch computations on all cores, one intra-operation thread each, results in order.

Threads, not processes: torch releases the interpreter lock inside its kernels, so two one-thread workers
beat one two-thread call (measured 1.1-1.4x on LeNet64), nothing is pickled, and lambdas and notebooks work.
One thread per computation also makes results independent of the number of workers, to the bit.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

from landscape.runtime.memory import keep_freed

LARGE = 2**25  # numbers that are worth all threads of torch
_worker = threading.local()  # has `busy` inside a worker thread: a nested map runs in that thread
Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(task: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Generator[Result]:
    """Yield task(item) in the order of the items; at most 2 * workers results wait in memory.

    task: a function that is safe to run in several threads.
    items: read lazily, in order.
    workers: number of threads.

    >>> list(ordered_map(lambda number: number**2, [1, 2, 3], workers=2))
    [1, 4, 9]
    """
    keep_freed()
    threads = torch.get_num_threads()
    single = isinstance(items, Sized) and len(items) == 1  # not worth a thread
    alone = workers == 1 or single or getattr(_worker, "busy", False)
    torch.set_num_threads(1)  # of the waiting thread, too: what it does with a result must not slow down the workers
    try:
        if alone:
            for item in items:
                yield task(item)
            return
        pool = _open_pool(workers)
        pending: deque[Future[Result]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(_run_alone, task, item))
                if len(pending) >= 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            wait([one for one in pending if not one.cancel()])  # none is left running when the caller goes on
    finally:
        torch.set_num_threads(threads)


@contextmanager
def use_one_thread(numbers: int) -> Iterator[None]:
    """Compute on one thread inside the block what lies between maps, unless it is large.

    After an operation that torch's threads have shared they go on looking for work for milliseconds, on the cores that
    the workers of the next map need: a small Hessian product took half as long again.

    numbers: that each operation goes through.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if numbers < LARGE else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@cache
def _open_pool(workers: int) -> ThreadPoolExecutor:
    """Threads that stay for the next map: starting them anew took a tenth of the time of a small Hessian product."""
    return ThreadPoolExecutor(workers)


os.register_at_fork(after_in_child=_open_pool.cache_clear)  # threads do not survive a fork


def _run_alone(task: Callable[[Item], Result], item: Item) -> Result:
    _worker.busy = True
    if torch.get_num_threads() != 1:  # OpenMP keeps the setting per thread
        torch.set_num_threads(1)
    return task(item)
