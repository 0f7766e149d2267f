"""Measure pieces of studies in parallel, in worker processes or on a cluster; this process writes the files.

A piece is a pure function of the files of its subjects, its settings and the pieces that it comes after. Workers open
the subjects themselves, each on one thread, so the answers are the same to the bit wherever pieces are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import xarray as xr

from analysis.catalog import STUDIES
from analysis.runner import Plan, PlanProgress, Say, Step, measure_piece
from analysis.study import Piece
from analysis.subjects import Opening, Subject
from training.executors.pool import Memory, TaskSet
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
    chains = {(one, piece): passes for one in progress for piece, passes in find_chains(one.plan).items()}
    tasks = [(one, piece) for one in progress for piece in one.left]
    numbers = {task: number for number, task in enumerate(tasks)}
    work = TaskSet(
        order=sorted(numbers.values(), key=lambda number: -chains[tasks[number]]),
        give=lambda worker, number: worker.give(number, make_task(*tasks[number])),
        describe=lambda number: f"measuring {tasks[number][1].name}",
        after={
            number: [numbers[one, earlier] for earlier in piece.after if (one, earlier) in numbers]
            for (one, piece), number in numbers.items()
        },
    )
    if tasks:
        with closing(placement.open(len(tasks))) as pool:
            for number, outcome in pool.compute(work):
                if isinstance(outcome, Exception):
                    raise outcome
                one, piece = tasks[number]
                data, said = cast("tuple[xr.Dataset, list[str]]", outcome)  # what PieceTask returns
                one.add(piece, data)
                for line in said:
                    say(line)
    return [plan.path for plan in plans]
