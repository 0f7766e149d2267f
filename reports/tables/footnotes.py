"""What is said below a table in a paper's shape."""

from __future__ import annotations

from dataclasses import dataclass, field

from reports.inputs.progress import CROSS, DAGGER
from reports.inputs.runs import Run
from reports.tables.cells import NEVER, describe_end
from reports.tables.table import Cell


@dataclass
class Footnotes:
    """What is said below a table, gathered while its cells are filled.

    reasons: why cells have no number, in the order of their letters. runs: that are not final, with where they stand.
    subsets: what was measured on a part of the data. never: whether some target was not reached.
    """

    reasons: list[str] = field(default_factory=list)
    runs: dict[str, tuple[Run, str]] = field(default_factory=dict)
    subsets: dict[str, None] = field(default_factory=dict)
    never: bool = False

    def make_cell(self, reason: str) -> Cell:
        """Make a cell without a number: a letter, which stands for the reason."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        return Cell(missing=_make_letter(self.reasons.index(reason)), note=reason, ranked=False)

    def write(self) -> tuple[str, ...]:
        """Write the lines."""
        lines = []
        for state, mark in (("diverged", CROSS), ("unfinished", DAGGER)):
            ends: dict[str, list[str]] = {}
            for run, where in self.runs.values():
                if run.progress.state == state:
                    ends.setdefault(where, []).append(f"seed {run.seed} {describe_end(run)}")
            told = "; ".join(f"{where}: {', '.join(some)}" for where, some in ends.items())
            lines += [f"{mark} {state}, and left out of means over other seeds: {told}."] if ends else []
        lines += [f"{NEVER} not reached."] if self.never else []
        if self.subsets:
            lines.append(f"n: from a part of the data ({'; '.join(self.subsets)}); SE: its standard error.")
        return (*lines, *(f"{_make_letter(place)} {reason}." for place, reason in enumerate(self.reasons)))


def _make_letter(place: int) -> str:
    return f"({chr(ord('a') + place)})" if place < 26 else f"({place + 1})"
