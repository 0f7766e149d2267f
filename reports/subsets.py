"""On how many examples a number rests: a number from a part of the data must not look like one from all of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.store import Stored

NAMES = ("examples", "population")  # as studies call how many were looked at, and of how many


@dataclass(frozen=True)
class Subset:
    """examples: how many were looked at; None for all, or where it is not on record. population: of how many."""

    examples: int | None = None
    population: int | None = None
    at_most: bool = False  # only the setting `limit` is on record: there may have been fewer

    @property
    def said(self) -> str:
        """In words, nothing for the whole data."""
        if self.examples is None:
            return ""
        of = f" of {self.population}" if self.population is not None else ""
        return f"{'at most ' if self.at_most else ''}{self.examples}{of} examples"


def seen(stored: Stored | None, table: str, *, each: bool = False) -> Subset:
    """What a table of a study says of the examples it was measured on, or else the study's setting `limit`.

    each: of the rows of a table, say clients, the largest; otherwise of the table as a whole.
    """
    if stored is None:
        return Subset()
    inside = stored.tables.get(table)
    if inside is not None:
        columns = {name: inside[name] for name in NAMES if name in inside.variables}
        for place in (columns, inside.attributes) if each else (inside.attributes, columns):
            examples, population = (_largest(place.get(name)) for name in NAMES)
            if examples is not None and population is not None:
                return Subset(examples, population) if examples < population else Subset()
    limit = stored.settings.get("limit")
    return Subset(limit, at_most=True) if isinstance(limit, int) else Subset()


def _largest(value: Any) -> int | None:
    numbers = np.asarray(value if value is not None else [], dtype=object).ravel()
    known = [int(one) for one in numbers if isinstance(one, (int, float, np.number)) and np.isfinite(one)]
    return max(known, default=None)


def described(results: Iterable[Stored]) -> str:
    """The examples of all tables of some answers in words for a caption; "all examples" where none is a subset."""
    known = list(results)
    found = dict.fromkeys(
        one.said
        for stored in known
        for name in stored.tables
        for each in (False, True)
        if (one := seen(stored, name, each=each)).said
    )
    if found:
        exact = [text for text in found if not text.startswith("at most")]
        return ", ".join(exact or found)
    return "all examples" if any("limit" in stored.settings for stored in known) else ""
