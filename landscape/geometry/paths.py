"""Straight paths between models, and the barriers on them.

Ends are flat vectors or models. A model is refused if the objective's vectors cannot hold it, for example if it has
BatchNorm statistics of its own under batchnorm="frozen"; with a vector that cannot be checked.
Federated clients start from one model, so no permutation of neurons is matched here; between independently
initialised models a straight path shows a barrier that matching would lower (Entezari et al. 2022).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from landscape.errors import whole
from landscape.geometry.surface import Point, coordinates, sample, vector
from landscape.objectives.objective import Objective
from landscape.progress import with_bar
from landscape.results import Array, Barrier, Height, Line, Progress

GOLDEN = (math.sqrt(5) - 1) / 2


@with_bar("interpolate")
def interpolate(
    objective: Objective,
    start: Point,
    end: Point,
    *,
    steps: int = 31,
    low: float = 0.0,
    high: float = 1.0,
    progress: Progress | None = None,
) -> Line:
    """Evaluate loss and error at (1 - x) start + x end for x in [low, high].

    objective: the loss.
    start: the model at x = 0.
    end: the model at x = 1.
    steps: number of points.
    low: the smallest x; below 0 the path reaches beyond the start.
    high: the largest x; above 1 the path reaches beyond the end.
    progress: called with (points done, points in all); by default a bar, see `landscape.show_progress`.

    In this form, unlike start + x (end - start), x = 0 and x = 1 give the two models to the bit. Both are on the grid
    if they lie a whole number of spacings from `low` (on [0, 1] from two steps up; on [-1, 2] if steps - 1 is a
    multiple of 3); otherwise the grid has no point there.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"low and high must be finite with low < high, got {low} and {high}")
    first, last = vector(objective, start, "start"), vector(objective, end, "end")
    return sample(
        objective, coordinates(low, high, whole("steps", steps)), partial(_mix, first, last), progress=progress
    )


@with_bar("barrier")
def barrier(
    objective: Objective,
    start: Point,
    end: Point,
    *,
    steps: int = 31,
    refine: int = 8,
    low: float = 0.0,
    high: float = 1.0,
    progress: Progress | None = None,
) -> Barrier:
    """Measure how high loss and error rise on the straight path, by the three definitions in use.

    objective: the loss.
    start: the model at one end, x = 0.
    end: the model at the other end, x = 1.
    steps: number of grid points from one end to the other.
    refine: evaluations of each golden-section search between grid points.
    low, high: the path of the result goes from low to high, as `list_beyond` continues the grid; barriers are those
        between the ends.
    progress: called with (evaluations done, evaluations in all), without those beyond the ends;
        by default a bar, see `landscape.show_progress`.

    A maximum over a grid is a lower bound, so one search follows around the highest loss and one around the highest
    excess over the chord. All evaluations enter the maxima, also those of the error, which is piecewise constant and
    not searched itself. A path with a loss that is not finite is not refined: an infinite loss between the ends gives
    infinite heights; NaN, or an infinite end, gives NaN.
    """
    total = whole("steps", steps, least=3) + 2 * whole("refine", refine, least=0)
    first, last = vector(objective, start, "start"), vector(objective, end, "end")
    on_grid = None if progress is None else (lambda done, _: progress(done, total))
    path = interpolate(objective, first, last, steps=steps, progress=on_grid)
    known = {float(x): float(value) for x, value in zip(path.x, path.loss, strict=True)}
    refined: list[tuple[float, float, float]] = []
    asked = steps

    def loss_at(x: float) -> float:
        nonlocal asked
        if x not in known:  # both searches start alike when they share a bracket
            theta = torch.empty_like(first)
            _mix(first, last, x, theta)
            found = objective.evaluate(theta)
            refined.append((x, found.loss, math.nan if found.error is None else found.error))
            known[x] = found.loss
        asked += 1
        if progress is not None:
            progress(asked, total)
        return known[x]

    if np.isfinite(path.loss).all():
        chord = partial(_evaluate_chord, path.loss[0], path.loss[-1])
        _search_golden_section(loss_at, path.x, path.loss, refine)
        _search_golden_section(lambda x: loss_at(x) - float(chord(x)), path.x, path.loss - chord(path.x), refine)
    extra = np.array(sorted(refined), dtype=np.float64).reshape(-1, 3)
    beyond = sample(objective, list_beyond(low, high, steps), partial(_mix, first, last))
    return _find_heights(path, extra, _add_beyond(path, beyond), steps)


def _find_heights(path: Line, refined: Array, shown: Line, steps: int) -> Barrier:
    """The barrier of a path between two models; `refined` holds x, loss and error between its grid points."""
    x = np.concatenate([path.x, refined[:, 0]])
    return Barrier(
        path=shown,
        loss=_measure_height(x, np.concatenate([path.loss, refined[:, 1]]), steps),
        error=None if path.error is None else _measure_height(x, np.concatenate([path.error, refined[:, 2]]), steps),
        refined=refined,
    )


def list_beyond(low: float, high: float, steps: int) -> Array:
    """Coordinates before the start (x < 0) and beyond the end (x > 1) of a path, about as far apart as between them.

    low: the smallest, at most 0.
    high: the largest, at least 1.
    steps: number of points from 0 to 1.

    >>> list_beyond(-0.5, 1.25, 5).tolist()
    [-0.5, -0.25, 1.25]
    """
    if not -math.inf < low <= 0 or not 1 <= high < math.inf:
        raise ValueError(f"low must be at most 0 and high at least 1, both finite; got {low} and {high}")
    before, beyond = (round((steps - 1) * length) for length in (-low, high - 1))
    left = coordinates(low, 0.0, before + 1)[:-1] if before else np.zeros(0)
    right = coordinates(1.0, high, beyond + 1)[1:] if beyond else np.zeros(0)
    return np.concatenate([left, right])


def _add_beyond(inner: Line, outer: Line) -> Line:
    """One line from what lies between the ends of a path and what lies beyond them."""
    at = int((outer.x < 0).sum())

    def join(name: str) -> Any:
        near, far = getattr(inner, name), getattr(outer, name)
        return None if near is None else np.concatenate([far[:at], near, far[at:]])

    return Line(**{one.name: join(one.name) for one in dataclasses.fields(Line)}) if len(outer.x) else inner


def _mix(start: Tensor, end: Tensor, x: float, out: Tensor) -> None:
    torch.mul(start, 1 - x, out=out).add_(end, alpha=x)


def _evaluate_chord(first: float, last: float, x: Array | float) -> Array | float:
    return (1 - x) * first + x * last


def _measure_height(x: Array, values: Array, steps: int) -> Height:
    """The three barriers from values on the grid, whose first `steps` entries run from 0 to 1, and beyond."""
    first, last = float(values[0]), float(values[steps - 1])
    with np.errstate(invalid="ignore"):  # an end of infinite loss has no chord
        excess = values - _evaluate_chord(first, last, x)
    top, over = int(np.argmax(values)), int(np.argmax(excess))  # NaN counts as the largest
    highest = float(values[top])
    return Height(
        linear=float(excess[over]),
        mean=highest - (first + last) / 2,
        max=highest - max(first, last),
        where=float(x[top]),
        linear_where=float(x[over]),
    )


def _search_golden_section(function: Callable[[float], float], x: Array, values: Array, evaluations: int) -> None:
    """Look for the maximum between the grid neighbours of the largest value, with that many evaluations."""
    top = int(np.argmax(values))
    low, high = float(x[max(top - 1, 0)]), float(x[min(top + 1, len(x) - 1)])
    inner: list[tuple[float, float]] = []  # at most two (x, value), the lower x first
    for _ in range(evaluations):
        if len(inner) == 2:
            (left, at_left), (right, at_right) = inner
            if at_left >= at_right:
                high, inner = right, [(left, at_left)]
            else:
                low, inner = left, [(right, at_right)]
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        ask = right if inner and abs(inner[0][0] - left) < abs(inner[0][0] - right) else left
        inner = sorted([*inner, (ask, function(ask))])
