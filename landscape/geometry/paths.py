"""Paths between models: straight ones with their barriers, and curves trained to stay low.

Ends are flat vectors or models. A model is refused if the objective's vectors cannot hold it, as with BatchNorm
statistics of its own under batchnorm="frozen"; a vector says nothing of what it left out.
Federated clients start from one model, so no permutation of neurons is matched here; between independently
initialised models a straight path shows a barrier that matching would lower (Entezari et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from landscape.errors import choose, positive, whole
from landscape.geometry.surface import Point, coordinates, sample, vector
from landscape.objectives.objective import Objective
from landscape.results import Array, Barrier, Curve, Height, Line, Progress
from landscape.rng import numpy_generator

GOLDEN = (math.sqrt(5) - 1) / 2
Weights = tuple[float, float, float]  # of start, bend and end; they sum to one


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
    """Loss and error at (1 - x) start + x end for x in [low, high], which may reach beyond the two models.

    In that form, unlike start + x (end - start), x = 0 and x = 1 give the two models to the bit. Both are on
    the grid when they lie within the range at a whole number of spacings from `low` (on [0, 1] from two steps up; for
    [-1, 2] when steps - 1 is a multiple of 3); otherwise the grid passes beside them.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"low and high must be finite with low < high, got {low} and {high}")
    first, last = vector(objective, start, "start"), vector(objective, end, "end")
    return sample(
        objective, coordinates(low, high, whole("steps", steps)), partial(_mix, first, last), progress=progress
    )


def barrier(
    objective: Objective,
    start: Point,
    end: Point,
    *,
    steps: int = 31,
    refine: int = 8,
    progress: Progress | None = None,
) -> Barrier:
    """How high the loss and the error rise on the straight path, by the three definitions in use.

    A maximum over a grid is a lower bound. Golden-section search with `refine` evaluations each goes on
    around the highest loss and around the highest excess over the chord, between the grid's neighbours; all
    that was evaluated enters the maxima, also those of the error, which is piecewise constant and therefore
    not searched itself. A path with a non-finite loss is not refined: an infinite one inside gives infinite
    heights, a NaN or an infinite end NaN.
    """
    whole("steps", steps, least=3)
    total = steps + 2 * whole("refine", refine, least=0)
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
        chord = partial(_chord, path.loss[0], path.loss[-1])
        _golden_section(loss_at, path.x, path.loss, refine)
        _golden_section(lambda x: loss_at(x) - float(chord(x)), path.x, path.loss - chord(path.x), refine)
    extra = np.array(sorted(refined), dtype=np.float64).reshape(-1, 3)
    x = np.concatenate([path.x, extra[:, 0]])
    return Barrier(
        path=path,
        loss=_height(x, np.concatenate([path.loss, extra[:, 1]]), steps),
        error=None if path.error is None else _height(x, np.concatenate([path.error, extra[:, 2]]), steps),
        refined=extra,
    )


def curve(
    objective: Objective,
    start: Point,
    end: Point,
    *,
    kind: str = "bezier",
    iterations: int = 100,
    lr: float | None = None,
    seed: int = 0,
    points: int = 31,
    progress: Progress | None = None,
) -> Curve:
    """A path of low loss between two models: its bend minimises E_{t~U(0,1)} L(phi(t)) (Garipov et al. 2018).

    bezier   phi(t) = (1-t)^2 start + 2t(1-t) bend + t^2 end
    polygon  two straight segments that meet in the bend at t = 1/2
    Starts from the straight path and takes Adam steps along dphi/dbend times the full gradient at phi(t),
    with one keyed t a step. The default rate is a twentieth of the models' root-mean-square distance per
    weight, falling linearly to zero: Adam moves every weight by about the rate, so a hundred steps can carry
    the bend a few times the distance between the models, whatever the scale of weights or loss, and the
    last ones average the noise of t away.
    """
    weights = CURVES[choose("kind", kind, CURVES)]
    whole("iterations", iterations, least=0)
    whole("points", points, least=2)
    first, last = vector(objective, start, "start"), vector(objective, end, "end")
    distance = float((last.double() - first.double()).norm())
    if distance == 0:
        raise ValueError("start and end are equal: a curve needs two different models")
    rate = 0.05 * distance / math.sqrt(objective.size) if lr is None else positive("lr", lr)
    bend = 0.5 * (first + last)
    optimizer = torch.optim.Adam([bend], lr=rate)
    theta = torch.empty_like(bend)
    for step, t in enumerate(numpy_generator(seed, "curve").random(iterations)):
        share = weights(float(t))
        _combine((first, bend, last), share, theta)
        try:
            gradient = objective.gradient(theta)
        except ValueError as error:
            raise ValueError(f"step {step} of the curve: {error}. Try lr below {rate:.3g}") from error
        bend.grad = share[1] * gradient
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / iterations)
        optimizer.step()
        if progress is not None:
            progress(step + 1, iterations + points)
    bend.grad = None
    x = coordinates(0.0, 1.0, points)
    shift = None if progress is None else (lambda done, _: progress(iterations + done, iterations + points))
    models = (first, bend, last)
    path = sample(objective, x, lambda t, flat: _combine(models, weights(t), flat), progress=shift)
    lengths = _segment_lengths(models, np.array([weights(float(t)) for t in x]))
    middles = 0.5 * (path.loss[:-1] + path.loss[1:])
    return Curve(
        kind=kind,
        bend=bend,
        path=path,
        length=float(lengths.sum()),
        min=float(path.loss.min()),
        max=float(path.loss.max()),
        mean=float(path.loss.mean()),
        arc_mean=float((middles * lengths).sum() / lengths.sum()),
    )


def _bezier(t: float) -> Weights:
    return (1 - t) ** 2, 2 * t * (1 - t), t**2


def _polygon(t: float) -> Weights:
    return max(1 - 2 * t, 0.0), 1 - abs(2 * t - 1), max(2 * t - 1, 0.0)


CURVES: dict[str, Callable[[float], Weights]] = {"bezier": _bezier, "polygon": _polygon}


def _mix(start: Tensor, end: Tensor, x: float, out: Tensor) -> None:
    torch.mul(start, 1 - x, out=out).add_(end, alpha=x)


def _combine(models: tuple[Tensor, Tensor, Tensor], weights: Weights, out: Tensor) -> None:
    torch.mul(models[0], weights[0], out=out).add_(models[1], alpha=weights[1]).add_(models[2], alpha=weights[2])


def _chord(first: float, last: float, x: Array | float) -> Array | float:
    return (1 - x) * first + x * last


def _height(x: Array, values: Array, steps: int) -> Height:
    """The three barriers from values on the grid, whose first `steps` entries run from 0 to 1, and beyond."""
    first, last = float(values[0]), float(values[steps - 1])
    with np.errstate(invalid="ignore"):  # an end of infinite loss has no chord
        excess = values - _chord(first, last, x)
    top, over = int(np.argmax(values)), int(np.argmax(excess))  # NaN counts as the largest
    highest = float(values[top])
    return Height(
        linear=float(excess[over]),
        mean=highest - (first + last) / 2,
        max=highest - max(first, last),
        where=float(x[top]),
        linear_where=float(x[over]),
    )


def _golden_section(function: Callable[[float], float], x: Array, values: Array, evaluations: int) -> None:
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


def _segment_lengths(models: tuple[Tensor, Tensor, Tensor], weights: Array) -> Array:
    """Distances between neighbouring points of the curve, from inner products instead of long vectors."""
    bend = models[1].double()
    sides = torch.stack([models[0].double() - bend, models[2].double() - bend])
    gram = (sides @ sides.T).cpu().numpy()
    steps = np.diff(weights[:, [0, 2]], axis=0)
    return np.asarray(np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", steps, gram, steps), 0.0)))
