"""Measure pieces of studies in parallel, in worker processes or on a cluster; this process writes the files.

A piece is a pure function of the files of its subjects, its settings and the pieces that it comes after. Workers open
the subjects themselves, each on one thread, so the answers are the same to the bit wherever pieces are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import xarray as xr

from analysis.catalog import STUDIES
from analysis.runner import Plan, PlanProgress, Say, Step, measure_piece
from analysis.study import Piece
from analysis.subjects import Opening, Subject
from training.executors.pool import Memory, Pool, TaskSet, Worker
from training.executors.pools import Placement

OPEN = 4  # subjects that a worker keeps open, with their data


@dataclass(frozen=True)
class PieceTask:
    """The task to measure one piece.

    study, settings: the question.
    openings: open the subjects.
    piece: what to measure. earlier: the Datasets of the pieces that it comes after.
    """

    study: str
    settings: object
    openings: tuple[Opening, ...]
    piece: Piece
    earlier: tuple[xr.Dataset, ...]

    def __call__(self, memory: Memory) -> tuple[xr.Dataset, list[str]]:
        """Measure the piece in a worker, which keeps the subjects open; also returns the lines to print."""
        said: list[str] = []
        subjects = [_open(one, memory) for one in self.openings]
        plan = Plan(STUDIES[self.study], self.settings, subjects, Path(), (), "", None, False)
        return measure_piece(plan, self.piece, self.earlier, said.append), said


def _open(opening: Opening, memory: Memory) -> Subject:
    """Open a subject, unless it is open already; the one that was opened first is closed if there are too many."""
    subjects: dict[str, Subject] = memory.setdefault("subjects", {})
    key = repr(opening)
    if key not in subjects:
        while len(subjects) >= OPEN:
            del subjects[next(iter(subjects))]
        subjects[key] = opening.open()
    return subjects[key]


def can_be_sent(plan: Plan) -> bool:
    """Whether other processes can measure a plan: its study is built in, and they can open its subjects."""
    return STUDIES.get(plan.study.name) is plan.study and all(one.opening is not None for one in plan.subjects)


def measure_speedup(plans: Sequence[Plan]) -> float:
    """Estimate the largest possible speed-up by workers: all work divided by the longest chain of pieces."""
    total = sum(plan.passes for plan in plans)
    longest = max((max(find_chains(plan).values(), default=0.0) for plan in plans if not plan.kept), default=0.0)
    return total / longest if longest else 1.0


def find_chains(plan: Plan) -> dict[Piece, float]:
    """Find, for each piece, its passes plus those of the longest chain of pieces that follow it."""
    chains = {piece: piece.passes for piece in plan.pieces}
    for piece in reversed(plan.pieces):  # each stands behind those it comes after
        for earlier in piece.after:
            chains[earlier] = max(chains[earlier], earlier.passes + chains[piece])
    return chains


def make_task(progress: PlanProgress, piece: Piece) -> PieceTask:
    """Make the task to measure a piece, once those that it comes after have been measured."""
    plan = progress.plan
    openings = tuple(subject.opening for subject in plan.subjects if subject.opening is not None)
    # without the chain of earlier pieces, which may be too long to be pickled
    bare = replace(piece, after=())
    return PieceTask(plan.study.name, plan.settings, openings, bare, tuple(progress.find_earlier(piece)))


def carry_out_all(
    plans: Sequence[Plan], placement: Placement, step: Callable[[Plan], Step], say: Say = print
) -> list[Path]:
    """Measure what is left of several plans in parallel, and write every answer as soon as it is complete.

    plans: all of which `can_be_sent`.
    placement: where the pieces are measured.
    step: makes what is called with the progress of a plan.
    say: called with every line that a person should see.
    Returns the files of the answers. The pieces with the longest chain behind them are measured first.
    """
    progress = [PlanProgress(plan, step(plan), say) for plan in plans]
    chains = [find_chains(plan) for plan in plans]
    tasks = [(place, piece) for place, one in enumerate(progress) for piece in one.left]
    if tasks:
        pool = placement.open(len(tasks))
        try:
            _measure_all(tasks, progress, chains, pool, say)
        finally:
            pool.close()
    return [plan.path for plan in plans]


def _measure_all(
    tasks: Sequence[tuple[int, Piece]],
    progress: Sequence[PlanProgress],
    chains: Sequence[dict[Piece, float]],
    pool: Pool,
    say: Say,
) -> None:
    indices = {task: index for index, task in enumerate(tasks)}

    def give(worker: Worker, index: int) -> None:
        place, piece = tasks[index]
        worker.give(index, make_task(progress[place], piece))

    work = TaskSet(
        order=sorted(range(len(tasks)), key=lambda index: -chains[tasks[index][0]][tasks[index][1]]),
        give=give,
        describe=lambda index: f"measuring {tasks[index][1].name}",
        after={
            index: [indices[place, one] for one in piece.after if (place, one) in indices]
            for index, (place, piece) in enumerate(tasks)
        },
    )
    for index, outcome in pool.compute(work):
        if isinstance(outcome, Exception):
            raise outcome
        place, piece = tasks[index]
        data, said = cast("tuple[xr.Dataset, list[str]]", outcome)  # what PieceTask returns
        progress[place].add(piece, data)
        for line in said:
            say(line)
