"""How far a run came: no table and no figure may show a half-done or diverged run as if it were final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

CROSS, DAGGER = "\N{MULTIPLICATION SIGN}", "\N{DAGGER}"  # how tables mark diverged and unfinished runs
STATES = ("finished", "diverged", "unfinished", "given")


@dataclass(frozen=True)
class Standing:
    """state: one of STATES; "given" is a model that was not trained here, so there is nothing to finish.

    rounds: how many are done. planned: how many the recipe asks for, where that is known.
    """

    state: str = "finished"
    rounds: int = 0
    planned: int | None = None

    @property
    def final(self) -> bool:
        return self.state in ("finished", "given")

    @property
    def said(self) -> str:
        """In words; nothing for a run that is final."""
        if self.final:
            return ""
        if self.state == "diverged":
            return f"diverged in round {self.rounds + 1}"
        return f"unfinished: {self.progress}"

    @property
    def progress(self) -> str:
        return f"{self.rounds} rounds" if self.planned is None else f"{self.rounds} of {self.planned} rounds"


def standing(status: Mapping[str, Any] | None, done: int, planned: int | None) -> Standing:
    """From status.json (None where it is missing or damaged), rounds on record, and the rounds that were asked for.

    Without a status a run counts as finished if every round that was asked for is on record.
    """
    state = "" if status is None else str(status["state"])
    if state == "diverged":
        return Standing("diverged", int(status["round"]) if status else done, planned)
    complete = state == "finished" or (status is None and planned is not None and done >= planned)
    return Standing("finished" if complete else "unfinished", done, planned)


class Standable(Protocol):
    """What has a standing: a run."""

    @property
    def standing(self) -> Standing: ...


R = TypeVar("R", bound=Standable)


def counted(runs: Sequence[R]) -> list[R]:
    """The runs (usually seeds) whose mean is shown: the final ones; if there is none, the unfinished ones.

    A diverged run never counts.
    """
    final = [run for run in runs if run.standing.final]
    return final or [run for run in runs if run.standing.state == "unfinished"]


def of_runs(runs: Sequence[R]) -> str:
    """What a legend adds to the name of a method: nothing where all its runs are final."""
    open_ = [run.standing for run in runs if not run.standing.final]
    if not open_:
        return ""
    if len(runs) == 1:
        return open_[0].said
    numbers = {state: sum(one.state == state for one in open_) for state in ("diverged", "unfinished")}
    return ", ".join(f"{number} of {len(runs)} runs {state}" for state, number in numbers.items() if number)
