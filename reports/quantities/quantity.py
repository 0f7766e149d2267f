"""What a quantity is: a number that the cells of a table show."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from reports.inputs.runs import Run
from reports.inputs.subsets import Subset


@dataclass(frozen=True)
class Quantity:
    """A number that cells show.

    name: short, for CSV and tests. label: with its units, for captions.
    find: the number of a run; NaN where it is not known, infinity where a target was never reached. Its second
    argument is the reference run of the same seed (`Grid.reference`, in the same column), or None.
    better: "higher", "lower", or nothing where numbers are not compared.
    decimals: as printed. unit: written behind every number. spread: what ± is over: "seeds", "clients" or nothing.
    study: that measures it; none for metrics. error: standard error of a number from a subset. examples: that subset.
    deviation: standard deviation over the clients of a run, for ± over clients.
    divisor: numbers are written divided by it: 1000 for "7.6k". signed: they are written with + or -.
    guessing: it is an accuracy: one as good as guessing is never marked as the best.
    relative: it is compared with the reference, which must be final too.
    comparable: a printed number means the same; false where the paper's own target or setting is lost.
    fixed: it is known from the first round on, so that diverged and unfinished runs have it as well.
    """

    name: str
    label: str
    find: Callable[[Run, Run | None], float] = field(compare=False)
    better: str = ""
    decimals: int | None = None
    unit: str = ""
    spread: str = "seeds"
    study: str = ""
    error: Callable[[Run], float] = field(compare=False, default=lambda run: math.nan)
    examples: Callable[[Run], Subset] = field(compare=False, default=lambda run: Subset())
    deviation: Callable[[Run], float] = field(compare=False, default=lambda run: math.nan)
    divisor: float = 1.0
    signed: bool = False
    guessing: bool = False
    relative: bool = False
    comparable: bool = True
    fixed: bool = False
