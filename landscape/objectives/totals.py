"""From the sums of all chunks to loss, error and their standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from landscape.losses.summed_loss import Sums
from landscape.objectives import sampling
from landscape.objectives.sampling import Draw
from landscape.results import Evaluation


def add_up(sums: Sequence[Sums], drawn: Draw | None) -> Evaluation:
    """Divide the sums of all chunks once.

    sums: what each chunk adds.
    drawn: how the examples were drawn, if they are a subset: the evaluation then carries standard errors.
    """
    count = _sum(part.count for part in sums)
    if count <= 0:
        raise ValueError("the loss counts no example: is every target ignored, or every weight zero?")
    loss = _sum(float(part.loss) for part in sums) / count
    labelled = sum(part.labelled for part in sums)
    error = sum(part.errors for part in sums) / labelled if labelled else None
    return Evaluation(
        loss,
        error,
        _standard_error([part.each for part in sums], drawn),
        _standard_error([part.each_error for part in sums], drawn) if labelled else None,
    )


def _standard_error(parts: Sequence[Tensor | None], drawn: Draw | None) -> float | None:
    """Standard error of a subset's ratio of sums, or None where those of single examples are not known."""
    known = [part for part in parts if part is not None]
    if drawn is None or len(known) < len(parts):
        return None
    each = np.concatenate([part.cpu().numpy() for part in known])
    return sampling.ratio_error(each[:, 0], each[:, 1], drawn)


def _sum(values: Iterable[float]) -> float:
    """The exactly rounded sum; infinite where it is beyond the largest number."""
    known = list(values)
    try:
        return math.fsum(known)
    except (OverflowError, ValueError):  # beyond the largest number, or both infinities
        return float(sum(known))
