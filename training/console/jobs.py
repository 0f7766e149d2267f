"""Run jobs in parallel: whole runs that are trained or measured, each in one worker. This file imports no torch.

The worker that does a job is the one process that writes into the run's directory, and holds its lease meanwhile. On a
cluster the folder of the runs must be one that all nodes share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from landscape.runtime.termination import Terminated
from training.console.tables import print_line
from training.executors.pool import Memory, Pool, TaskSet
from training.executors.pools import Placement
from training.executors.process_pool import ProcessPool
from training.storage import lock, metrics

SILENCE = 60.0  # seconds between two lines about jobs that take long
GRACE = 20.0  # seconds that workers are given to save their runs when the command is asked to end; Slurm gives 30


@dataclass(frozen=True)
class Job:
    """A call that can be sent to another process, with a name for messages.

    name: of the run that it works on. call: what to do; a function at the top of a module, with its arguments.
    patience: seconds to wait for a lease that another process holds.
    """

    name: str
    call: Callable[[], object]
    patience: float = 0.0

    def __call__(self, memory: Memory) -> object:
        """Do the job in a worker."""
        with lock.wait_for_leases(self.patience):
            return self.call()


def run_jobs(
    jobs: Sequence[Job], placement: Placement, console: Console, runs: Path | None = None
) -> Iterator[tuple[Job, Any]]:
    """Run jobs in parallel, and yield each with its result as it ends; the error of a job is raised.

    jobs: what to run. placement: where.
    console: where to print what is still running. runs: folder of the jobs' runs, to print their rounds.
    """
    if placement.backend == "processes" and min(placement.workers or os.cpu_count() or 1, len(jobs)) <= 1:
        for job in jobs:
            yield job, job.call()
        return
    if placement.backend == "ray":  # a worker that was lost with its node leaves a lease, which ends after a minute
        jobs = [replace(job, patience=lock.STALE + 3 * lock.RENEWED) for job in jobs]
    pool = placement.open(len(jobs))
    work = TaskSet(
        range(len(jobs)), lambda worker, index: worker.give(index, jobs[index]), lambda i: f"at {jobs[i].name}"
    )
    told = time.monotonic()

    def tell() -> None:
        nonlocal told
        if runs is not None and time.monotonic() - told >= SILENCE:
            told = time.monotonic()
            for name in [jobs[worker.index].name for worker in pool.workers if worker.index is not None]:
                print_line(console, f"running: {_tell_progress(runs / name)}")

    try:
        for index, outcome in pool.compute(work, tell, SILENCE):
            if isinstance(outcome, Exception):
                raise outcome
            if runs is not None and not (runs / jobs[index].name).exists():
                raise OSError(f"{runs / jobs[index].name} was made on another node: all nodes must share {runs}")
            yield jobs[index], outcome
    except Terminated:
        _let_save(pool)
        raise
    finally:
        pool.close()


def _let_save(pool: Pool) -> None:
    """Give the workers of this machine time to save their runs before they end."""
    if isinstance(pool, ProcessPool):
        pool.ask_to_end(GRACE)


def _tell_progress(run: Path) -> str:
    try:
        return f"{run.name}, round {len(metrics.read(run))}"
    except (OSError, ValueError):  # not begun yet
        return run.name
