"""On how many examples a number rests: a number from a part of the data must not look like one from all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.store import Stored, Table


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


def seen(stored: Stored | None, table: str, side: str = "") -> Subset:
    """What a table of a study says of the examples it was measured on, or the study's setting `limit`.

    side: what the names begin with, where a table holds several: local_, global_.
    """
    if stored is None:
        return Subset()
    inside = stored.tables.get(table)
    examples, population = (_count(inside, side, name) for name in ("examples", "population"))
    if examples is not None and population is not None:
        return Subset(examples, population) if examples < population else Subset()
    limit = stored.settings.get("limit")
    if not isinstance(limit, int):
        return Subset()
    return Subset(limit if examples is None else examples, population, at_most=examples is None)


def _count(table: Table | None, side: str, name: str) -> int | None:
    """A number of examples, from a variable (the largest of its last row) or an attribute."""
    if table is None:
        return None
    for key in (f"{side}{name}", name):
        value = table[key] if key in table.variables else table.attributes.get(key)
        numbers = np.asarray(value if value is not None else [], dtype=object).ravel()
        known = [int(one) for one in numbers if isinstance(one, (int, float, np.number)) and np.isfinite(one)]
        if known:
            return max(known)
    return None


def described(results: Iterable[Stored]) -> str:
    """The examples of all tables of some answers in words for a caption; "all examples" where none is a subset."""
    known = list(results)
    found = dict.fromkeys(
        one.said
        for stored in known
        for name in stored.tables
        for side in SIDES
        if (one := seen(stored, name, side)).said
    )
    if found:
        return ", ".join(found)
    limited = [
        stored.settings for stored in known if isinstance(stored.settings, Mapping) and "limit" in stored.settings
    ]
    return "all examples" if limited else ""


SIDES = ("", "local_", "global_")
