"""Distances and angles between models, and the point that local models are compared with."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from analysis.subjects import Subject
from landscape import directions

Reference = Literal["sent", "global"]


def cosine(a: Tensor, b: Tensor) -> float:
    """The cosine of two vectors; NaN where one is zero or not known."""
    defined = all(bool(one.any()) and not bool(one.isnan().any()) for one in (a, b))
    return directions.cosine(a, b) if defined else math.nan


def distance(a: Tensor, b: Tensor) -> float:
    """||a - b|| in float64."""
    return float((a.double() - b.double()).norm())


def find_reference(subject: Subject, wanted: Reference, round: int) -> Tensor:
    """What local models are compared with.

    wanted: "sent", the point at which they began, which must be on record; or "global", the model made of them.
    """
    if wanted == "global":
        return subject.point(round)
    found = subject.sent_point(round)
    if found is None:
        kept = [str(one) for one in subject.rounds if subject.sent_point(one) is not None]
        raise ValueError(
            f"{subject.name}: round {round} does not keep the point that was sent; rounds that do: "
            f'{", ".join(kept) or "none"}. Train with checkpoints.keep_locals = "all" (runs of earlier versions never '
            'kept it), or set reference = "global" to compare with the model that was made of the local ones'
        )
    return found
