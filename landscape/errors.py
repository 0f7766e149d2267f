"""Checks of arguments; their messages say what was expected and what was given. Imports no torch."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def choose(kind: str, name: str, choices: Iterable[str]) -> str:
    """Return `name` if it is one of `choices`; otherwise raise ValueError that suggests the nearest spelling.

    kind: what is chosen, for the message. name: the choice. choices: all valid names.

    >>> choose("study", "surfase", ["surface", "plane"])
    Traceback (most recent call last):
    ValueError: study: unknown 'surfase'; did you mean 'surface'? Known: plane, surface
    """
    known = sorted(choices)
    if name in known:
        return name
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    raise ValueError(f"{kind}: unknown '{name}'{hint} Known: {', '.join(known)}")


def positive(name: str, value: float) -> float:
    """Return `value` if it is finite and above zero, otherwise raise ValueError; `name` is for the message."""
    if not (value > 0 and value < float("inf")):
        raise ValueError(f"{name} must be positive and finite, got {value}")
    return value


def whole(name: str, value: int, least: int = 1, most: int | None = None) -> int:
    """Return `value` as an int if it is a whole number within [least, most], otherwise raise ValueError.

    name: of the argument, for the message. value: any number. least, most: the range; most=None means no upper limit.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or value % 1 != 0 or value < least or (most is not None and value > most):
        span = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ValueError(f"{name} must be a whole number, {span}; got {value}")
    return int(value)


def finite(name: str, vector: Tensor) -> Tensor:
    """Return `vector` if every entry is finite, otherwise raise ValueError; `name` is for the message."""
    # one non-finite entry makes the sum non-finite; the slow test runs only then, since a sum may also overflow
    if not bool(vector.sum().isfinite()) and not bool(vector.isfinite().all()):
        bad = (~vector.isfinite()).sum().item()
        raise ValueError(f"{name} has {bad} non-finite entries of {vector.numel()}: did training diverge?")
    return vector
