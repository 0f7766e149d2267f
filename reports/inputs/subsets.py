"""How many examples a number was measured on: a number from a subset must not look like one from all the data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from analysis.store import Answer

NAMES = ("examples", "population")  # as studies call how many were looked at, and of how many


@dataclass(frozen=True)
class Subset:
    """The examples that a number was measured on.

    examples: how many; None for all of them, or where it is not on record.
    population: out of how many; None where it is not on record.
    at_most: only the setting `limit` is on record, so there may have been fewer.

    >>> Subset(300, 60000).description
    '300 of 60000 examples'
    """

    examples: int | None = None
    population: int | None = None
    at_most: bool = False

    @property
    def description(self) -> str:
        """What a caption says of it; empty for all the data."""
        if self.examples is None:
            return ""
        of = f" of {self.population}" if self.population is not None else ""
        return f"{'at most ' if self.at_most else ''}{self.examples}{of} examples"


def find_subset(answer: Answer | None, *, each: bool = False) -> Subset:
    """Find how many examples an answer was measured on, or else the study's setting `limit`.

    answer: None counts as all the data.
    each: the largest number of a single client, instead of all together.
    """
    if answer is None:
        return Subset()
    columns = {name: answer.data[name].values for name in NAMES if name in answer.data.data_vars}
    for place in (columns, answer.data.attrs) if each else (answer.data.attrs, columns):
        examples, population = (_largest(place.get(name)) for name in NAMES)
        if examples is not None and population is not None:
            return Subset(examples, population) if examples < population else Subset()
    limit = answer.settings.get("limit")
    return Subset(limit, at_most=True) if isinstance(limit, int) else Subset()


def _largest(value: object) -> int | None:
    numbers = np.asarray(value if value is not None else [], dtype=object).ravel()
    known = [int(one) for one in numbers if isinstance(one, (int, float, np.number)) and np.isfinite(one)]
    return max(known, default=None)


def describe_subsets(answers: Iterable[Answer]) -> str:
    """Describe the examples of some answers for a caption: "all examples" where none is a subset."""
    known = list(answers)
    found = dict.fromkeys(
        text for answer in known for each in (False, True) if (text := find_subset(answer, each=each).description)
    )
    if found:
        exact = [text for text in found if not text.startswith("at most")]
        return ", ".join(exact or found)
    return "all examples" if any("limit" in answer.settings for answer in known) else ""
