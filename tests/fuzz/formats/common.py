"""Readers that several formats share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis import store
from reports.inputs.runs import read_runs
from tests.fuzz.cases import RefusedError
from training import verification
from training.storage import run_directory

FINISHED, STOPPED = "runs/finished", "runs/stopped"
MANY = 20  # lines that a list of problems may have


def check_run(folder: Path, run: str = FINISHED) -> int:
    """`landscape check`."""
    results = store.find_answers(folder / run / "analysis")
    problems = [*verification.check_run(folder / run), *filter(None, map(store.verify, results))]
    if problems:
        raise RefusedError("\n".join(problems))
    return len(run_directory.checkpoint_rounds(folder / run))


def report_run(folder: Path, run: str = FINISHED) -> Any:
    """What `landscape report` reads; nothing may end it."""
    found = read_runs([folder / run])
    if found.problems:
        raise RefusedError("\n".join(found.problems))
    (one,) = found.runs
    rounds, accuracy = one.series("accuracy")
    return one, one.algorithm, one.data, one.seed, one.heterogeneity, rounds, accuracy
