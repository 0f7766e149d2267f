"""Typed access to the settings of a run, which lie in nested tables as in its config.toml.

The kinds of the settings that reports read are checked once, in `reports.inputs.reading.read_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

Settings = Mapping[str, object]  # a setting -> its value, or a table of further settings


def find_table(settings: Settings, name: str) -> Settings:
    """Find a table of a recipe; an empty one where there is none.

    >>> find_table({"rounds": {"count": 30}}, "rounds")
    {'count': 30}
    """
    found = settings.get(name)
    return found if isinstance(found, Mapping) else {}


def find_whole(settings: Settings, key: str, default: int) -> int:
    """Find a setting that is a whole number.

    settings: the table it is in.
    default: what counts where it is not set.
    """
    found = settings.get(key, default)
    return found if isinstance(found, int) else default


def is_number(value: object) -> TypeGuard[float]:
    """Whether a setting is a number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_number(value: object) -> float:
    """Return a setting that must be a number, a whole number as it is."""
    if not is_number(value):
        raise TypeError(f"expected a number, got {value!r}")
    return value
