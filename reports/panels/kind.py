"""What a kind of panel is: a function that draws series onto given axes, its options, and what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.store import Answer
from landscape.errors import choose
from landscape.plotting.scales import Scale
from reports.inputs.runs import Run
from reports.quantities.catalog import Quantity
from reports.rows import Row
from reports.variants import Variant

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shown(Variant):
    """A series of a panel: its printed name, its look, and one run for each seed; none where it was not run.

    group: heading of the series that belong together.
    quantity: what is shown of it, where that is not the same in the whole panel.
    lacks: why it has no runs.
    """

    group: str = ""
    quantity: Quantity | None = None
    lacks: str = ""

    @property
    def diverged(self) -> list[Run]:
        """The seeds that diverged."""
        return [run for run in self.runs if run.progress.state == "diverged"]

    @property
    def unfinished(self) -> bool:
        """Whether what is shown of it may still change."""
        return any(run.progress.state == "unfinished" for run in self.shown)


@dataclass(frozen=True, eq=False)
class Given:
    """What a panel is given beside its series.

    answer: of the study that compares the series; None where there is none.
    scale: heights or colours that the panels of a figure share.
    """

    answer: Answer | None = None
    scale: Scale | None = None


Draw = Callable[[Any, Sequence[Shown], Any, Given], list[Row]]


@dataclass(frozen=True)
class Kind:
    """A kind of panel.

    name: as `Panel.kind` calls it. shows: in a few words.
    draw: draws series onto axes and returns what is drawn; every row has the column "series". No rows: no numbers.
    options: the class of its options; all have defaults.
    studies: those it reads, by its options; none for metrics.
    relief: whether its axes have three dimensions.
    lines: whether series of one group are one line, called after the group.
    most: how many series a panel can have; None: any number.
    together: whether one picture shows all its series, which then have no numbers of their own.
    heading: whether the title that it gives its axes stands below the panel's; else only where a panel has none.
    values: numbers for which the panels of a figure with the same `options.scale` share one scale.
    bar: what the colour bar of a shared scale is called; no bar where it is empty.
    describe: what captions must say of it.
    size: width and height in inches.
    """

    name: str
    shows: str
    draw: Draw = field(compare=False)
    options: type[Any]
    studies: Callable[[Any], tuple[str, ...]] = field(compare=False, default=lambda options: ())
    relief: bool = False
    lines: bool = False
    most: int | None = None
    together: bool = False
    heading: bool = False
    values: Callable[[Sequence[Shown], Any, Given], list[Array]] | None = field(compare=False, default=None)
    bar: Callable[[Any], str] = field(compare=False, default=lambda options: "")
    describe: Callable[[Sequence[Shown], Any, Given], list[str]] = field(
        compare=False, default=lambda shown, options, given: []
    )
    size: tuple[float, float] = (3.4, 2.7)

    def read_options(self, given: Mapping[str, object]) -> Any:
        """Make the options of a panel; ValueError with the nearest name for one that this kind has not."""
        known = [one.name for one in fields(self.options)]
        for name in given:
            choose(f"option of a panel of kind {self.name}", name, known)
        return self.options(**given)


def find_quantity(shown: Shown, usual: Quantity) -> Quantity:
    """Find what is shown of a series: its own quantity, or else that of the panel."""
    return shown.quantity or usual


def list_values(shown: Shown, quantity: Quantity, reference: Shown | None = None) -> Array:
    """List the known numbers of a series, one for each seed that counts.

    reference: the series that the quantity compares with, seed by seed.
    """
    others = {} if reference is None else {run.seed: run for run in reference.shown}
    found = np.asarray([quantity.find(run, others.get(run.seed)) for run in shown.counted], dtype=np.float64)
    return found[np.isfinite(found)]
