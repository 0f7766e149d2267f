"""Pieces of studies measured several at a time, by worker processes or on a cluster; this process writes.

A piece is a pure function of the files of its subjects, its settings and the pieces that it comes after. Workers open
the subjects themselves, each on one thread, so the answers are the same to the bit wherever pieces are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import xarray as xr

from analysis.catalog import STUDIES
from analysis.runner import Plan, Say, Step, load_piece, make_room, measure_piece, save_piece, write_answer
from analysis.study import Piece
from analysis.subjects import Opening, Subject
from training.executors.pool import Memory, Pool, Work, Worker
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
        """Measure the piece in a worker, which keeps the subjects open; returns also what should be said about it."""
        said: list[str] = []
        subjects = [_open(one, memory) for one in self.openings]
        plan = Plan(STUDIES[self.study], self.settings, subjects, Path(), (), "", None, False)
        return measure_piece(plan, self.piece, self.earlier, said.append), said


def _open(opening: Opening, memory: Memory) -> Subject:
    """The subject of an opening: one that is open already, or a new one in the place of the one opened longest ago."""
    subjects: dict[str, Subject] = memory.setdefault("subjects", {})
    key = repr(opening)
    if key not in subjects:
        while len(subjects) >= OPEN:
            del subjects[next(iter(subjects))]
        subjects[key] = opening.open()
    return subjects[key]


def can_be_sent(plan: Plan) -> bool:
    """Whether other processes can measure the pieces of a plan: of a built-in study, of subjects that they can open."""
    return STUDIES.get(plan.study.name) is plan.study and all(one.opening is not None for one in plan.subjects)


def measure_speedup(plans: Sequence[Plan]) -> float:
    """How many times faster so many workers as are of use would be: all work over the longest chain of pieces."""
    total = sum(plan.passes for plan in plans)
    longest = max((max(find_chains(plan).values(), default=0.0) for plan in plans if not plan.kept), default=0.0)
    return total / longest if longest else 1.0


def find_chains(plan: Plan) -> dict[Piece, float]:
    """The passes of each piece together with those of the longest chain of pieces that come after it."""
    chains = {piece: piece.passes for piece in plan.pieces}
    for piece in reversed(plan.pieces):  # each stands behind those it comes after
        for earlier in piece.after:
            chains[earlier] = max(chains[earlier], earlier.passes + chains[piece])
    return chains


class _Progress:
    """What has been found of one plan."""

    def __init__(self, plan: Plan, step: Step, say: Say):
        self.plan, self.step, self.say = plan, step, say
        self.found: dict[Piece, xr.Dataset] = {}
        if not plan.kept:
            make_room(plan, say)
            kept = {piece: load_piece(plan, piece) for piece in plan.pieces}
            self.found = {piece: data for piece, data in kept.items() if data is not None}
            self._show()

    @property
    def left(self) -> list[Piece]:
        """Pieces that are not measured yet."""
        return [piece for piece in self.plan.pieces if piece not in self.found]

    def make_task(self, piece: Piece) -> PieceTask:
        """The task to measure a piece, once those that it comes after have been found."""
        openings = tuple(subject.opening for subject in self.plan.subjects if subject.opening is not None)
        earlier = tuple(self.found[one] for one in piece.after)
        # without the chain of earlier pieces, which may be too long to be pickled
        return PieceTask(self.plan.study.name, self.plan.settings, openings, replace(piece, after=()), earlier)

    def add(self, piece: Piece, data: xr.Dataset, said: Sequence[str]) -> None:
        """Keep what a piece has found."""
        save_piece(self.plan, piece, data)
        self.found[piece] = data
        for line in said:
            self.say(line)
        self._show()

    def _show(self) -> None:
        self.step(len(self.found), len(self.plan.pieces))
        if len(self.found) == len(self.plan.pieces):
            write_answer(self.plan, self.found)


def carry_out_all(
    plans: Sequence[Plan], placement: Placement, step: Callable[[Plan], Step], say: Say = print
) -> list[Path]:
    """Measure what is left of several plans, pieces side by side, and write every answer as soon as it is complete.

    plans: all of which `can_be_sent`.
    placement: where the pieces are measured.
    step: makes what is called with the progress of a plan.
    say: called with every line that a person should see.
    Returns the files of the answers. The pieces with the longest chain behind them are measured first.
    """
    progress = [_Progress(plan, step(plan), say) for plan in plans]
    chains = [find_chains(plan) for plan in plans]
    tasks = [(place, piece) for place, one in enumerate(progress) for piece in one.left]
    if tasks:
        pool = placement.open(len(tasks))
        try:
            _measure_all(tasks, progress, chains, pool)
        finally:
            pool.close()
    return [plan.path for plan in plans]


def _measure_all(
    tasks: Sequence[tuple[int, Piece]], progress: Sequence[_Progress], chains: Sequence[dict[Piece, float]], pool: Pool
) -> None:
    indices = {task: index for index, task in enumerate(tasks)}

    def give(worker: Worker, index: int) -> None:
        place, piece = tasks[index]
        worker.give(index, progress[place].make_task(piece))

    work = Work(
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
        progress[place].add(piece, *outcome)  # type: ignore[misc]  # what PieceTask returns
