"""How far a run came: no table and no figure may show an unfinished or diverged run as if it were final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

CROSS, DAGGER = "\N{MULTIPLICATION SIGN}", "\N{DAGGER}"  # how tables mark diverged and unfinished runs
STATES = ("finished", "diverged", "unfinished", "given")


@dataclass(frozen=True)
class Progress:
    """How far a run came.

    state: one of STATES; "given" is a model that was not trained here, so there is nothing to finish.
    rounds: how many are done.
    planned: how many the recipe asks for; None where that is not known.

    >>> Progress("unfinished", 40, 100).description
    'unfinished: 40 of 100 rounds'
    """

    state: str = "finished"
    rounds: int = 0
    planned: int | None = None

    @property
    def final(self) -> bool:
        """Whether its numbers will not change any more and may stand in a mean over seeds."""
        return self.state in ("finished", "given")

    @property
    def description(self) -> str:
        """What readers must know of a run that is not final; empty for one that is."""
        if self.final:
            return ""
        if self.state == "diverged":
            return f"diverged in round {self.rounds + 1}"
        return f"unfinished: {self.rounds}{'' if self.planned is None else f' of {self.planned}'} rounds"


def determine_progress(status: Mapping[str, object] | None, done: int, planned: int | None) -> Progress:
    """Determine how far a run came.

    status: the content of its status.json; None where that is missing or damaged. Then a run counts as finished if
        every planned round is on record.
    done: rounds on record.
    planned: rounds that the recipe asks for; None where that is not known.
    """
    state = "" if status is None else str(status["state"])
    if status is not None and state == "diverged":
        last = status["round"]
        return Progress("diverged", last if isinstance(last, int) else done, planned)
    complete = state == "finished" or (status is None and planned is not None and done >= planned)
    return Progress("finished" if complete else "unfinished", done, planned)


class HasProgress(Protocol):
    """Something whose progress is known: a run."""

    @property
    def progress(self) -> Progress: ...


R = TypeVar("R", bound=HasProgress)


def select_counted(runs: Sequence[R]) -> list[R]:
    """Select the runs, usually seeds, whose mean is shown: the final ones; if there is none, the unfinished ones.

    A diverged run never counts.
    """
    final = [run for run in runs if run.progress.final]
    return final or [run for run in runs if run.progress.state == "unfinished"]


def describe_progress(runs: Sequence[R]) -> str:
    """Say what a legend adds to the name of a method; nothing where all its runs are final.

    runs: the seeds of the method.
    """
    open_ = [run.progress for run in runs if not run.progress.final]
    if not open_:
        return ""
    if len(runs) == 1:
        return open_[0].description
    numbers = {state: sum(one.state == state for one in open_) for state in ("diverged", "unfinished")}
    return ", ".join(f"{number} of {len(runs)} runs {state}" for state, number in numbers.items() if number)
