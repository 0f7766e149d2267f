"""Perturbations that raise the loss: one step, the highest found within a radius, and random ones.

A perturbation is e = T z with z in a ball or box of the given radius (or Gaussian with that standard deviation), so
adaptive scales (T = |w|) need no division by weights, which may be zero. Only parameters move, never running
statistics; loss and gradient use the same data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from landscape.geometry.ascent import ascend, climb_corners, find_steepest, move_coordinates
from landscape.objectives.objective import Objective
from landscape.operators import RescaledOperator
from landscape.results import Progress, standard_error
from landscape.rng import normal
from landscape.spectrum.lanczos import eigenpairs

FEW = 24  # coordinates that are also moved one by one in a box
SWEEPS = 20  # most evaluations of that per coordinate
SHORT = 0.25  # radii per step of a second ascent in a ball with few coordinates
RESTARTS = (15, 3)  # random ones of a maximum, for few coordinates and for many


@dataclass(frozen=True)
class Effort:
    """How long to search."""

    steps: int  # of one ascent
    samples: int  # pairs of random perturbations
    restarts: int | None  # from random points; None: by the number of coordinates
    ceiling: bool  # whether to bound the maximum from above


@dataclass(frozen=True)
class Neighbourhood:
    """The loss around theta, in units of a scale T."""

    objective: Objective
    theta: Tensor  # (size,)
    base: float  # loss at theta
    gradient: Tensor  # (size,) zero on running statistics
    scale: Tensor  # (size,) T, zero on running statistics
    radius: float
    p: float  # norm of the constraint ||z||_p <= radius: 2 for a ball, infinity for a box
    effort: Effort
    seed: int
    progress: Progress | None

    @property
    def boxed(self) -> bool:
        """Whether the constraint is a box."""
        return math.isinf(self.p)

    @cached_property
    def moving(self) -> Tensor:
        """Coordinates that a perturbation can move."""
        return self.scale.nonzero().flatten()

    @property
    def restarts(self) -> int:
        """Number of climbs from random points."""
        few, many = RESTARTS
        return self.effort.restarts if self.effort.restarts is not None else few if len(self.moving) <= FEW else many

    def measure(self, perturbation: Tensor) -> float:
        """L(theta + e) - L(theta)."""
        return self.objective.loss(self.theta + perturbation) - self.base

    def draw(self, *parts: str | int) -> Tensor:
        """T times standard Gaussian numbers."""
        return self.scale * normal((self.objective.size,), self.seed, *parts).to(self.theta)


@dataclass(frozen=True)
class Rise:
    """How much the loss rises; the fields are those of `Sharpness`."""

    value: float
    perturbation: Tensor | None
    evaluations: int
    standard_error: float = math.nan
    gap: float = math.nan
    ceiling: float = math.nan
    point: Tensor | None = None  # the perturbation in units of the scale


def take_one_step(around: Neighbourhood) -> Rise:
    """Measure the rise after one step; for a linear loss the best z is radius times the steepest direction of T g."""
    slope = around.scale * around.gradient
    if not slope.any():
        return Rise(0.0, torch.zeros_like(around.theta), 0)
    perturbation = around.scale * (around.radius * find_steepest(slope, around.p))
    return Rise(around.measure(perturbation), perturbation, 1)


def maximise(around: Neighbourhood) -> Rise:
    """Find the highest rise: the best of no step, one step, and two independent searches."""
    stay = Rise(0.0, torch.zeros_like(around.theta), 0)
    first = take_one_step(around)
    slope = around.scale * around.gradient
    towards = slope if bool(slope.any()) else _draw_direction(around, "ascent")
    searches = [_climb_on(around, around.radius * find_steepest(towards, around.p))]
    _report(around, 1)
    if around.restarts:
        searches.append(_restart(around))
    best = _choose_highest([stay, first, *searches])
    ceiling = _bound(around) if around.effort.ceiling else math.nan
    gap = best.value - min(found.value for found in searches) if around.restarts else math.nan
    spent = first.evaluations + sum(found.evaluations for found in searches)
    return replace(best, evaluations=spent, gap=gap, ceiling=ceiling)


def maximise_percentage(around: Neighbourhood) -> Rise:
    """The highest rise in per cent of 1 + L(theta)."""
    if around.base <= -1:
        raise ValueError(f"keskar divides by 1 + loss, which needs a loss above -1; got {around.base}")
    found = maximise(around)
    unit = 100 / (1 + around.base)
    return replace(found, value=unit * found.value, gap=unit * found.gap, ceiling=unit * found.ceiling)


def average_random(around: Neighbourhood) -> Rise:
    """The mean rise over random perturbations.

    They come in pairs: the mean over +e and -e has no first-order term, so the gradient adds no variance.
    """

    def points() -> Iterator[Callable[[Tensor], object]]:
        for index in range(around.effort.samples):
            e = around.radius * around.draw("average", index)
            for sign in (1, -1):
                yield partial(_write, around.theta, e, sign)

    losses = []
    for evaluation in around.objective.evaluate_each(points()):
        losses.append(evaluation.loss)
        if around.progress is not None and len(losses) % 2 == 0:
            around.progress(len(losses) // 2, around.effort.samples)
    rises = np.asarray(losses).reshape(-1, 2).mean(axis=1) - around.base
    return Rise(float(rises.mean()), None, len(losses), standard_error(rises))


def _restart(around: Neighbourhood) -> Rise:
    """Climb briefly from random points, then longer from the best of them."""
    short = -(-around.effort.steps // 4)
    tried = []
    for index in range(around.restarts):
        start = around.radius * find_steepest(_draw_direction(around, "restart", index), around.p)
        if around.boxed:
            tried.append(_polish(around, start, 0))
        else:
            point, spent = ascend(partial(_climb, around), start, around.radius, p=around.p, steps=short)
            tried.append(_measure(around, point, spent))
        _report(around, 2 + index)
    best = _choose_highest(tried)
    final = _climb_on(around, best.point) if best.point is not None and math.isfinite(best.value) else best
    _report(around, 2 + around.restarts)
    return replace(_choose_highest([best, final]), evaluations=sum(found.evaluations for found in (*tried, final)))


def _climb_on(around: Neighbourhood, start: Tensor) -> Rise:
    """Take all steps of ascent; in a box, then search its corners and single coordinates."""
    steps = around.effort.steps
    point, spent = ascend(partial(_climb, around), start, around.radius, p=around.p, steps=steps)
    if around.boxed:
        return _polish(around, point, spent)
    if len(around.moving) <= FEW:  # long steps miss a top between steep falls
        point, more = ascend(partial(_climb, around), point, around.radius, p=around.p, steps=steps, first=SHORT)
        spent += more
    return _measure(around, point, spent)


def _polish(around: Neighbourhood, start: Tensor, spent: int) -> Rise:
    """From corner to corner of the box, and coordinate by coordinate where there are few."""
    point, more = climb_corners(partial(_climb, around), start, around.radius, steps=around.effort.steps)
    spent += more
    if len(around.moving) <= FEW:
        most = SWEEPS * len(around.moving)
        point, more = move_coordinates(
            lambda z: around.measure(around.scale * z), point, around.radius, around.moving.tolist(), most=most
        )
        spent += more
    return _measure(around, point, spent)


def _measure(around: Neighbourhood, point: Tensor, spent: int) -> Rise:
    """The rise at a point, again without gradients: the one-step value is, and kernels may round differently."""
    perturbation = around.scale * point
    return Rise(around.measure(perturbation), perturbation, spent + 1, point=point)


def _choose_highest(found: Sequence[Rise]) -> Rise:
    """Choose the first of the highest rises; if the loss is NaN anywhere there is no maximum."""
    undefined = [one for one in found if math.isnan(one.value)]
    return undefined[0] if undefined else max(found, key=lambda one: one.value)


def _draw_direction(around: Neighbourhood, *parts: str | int) -> Tensor:
    """Standard Gaussian numbers for the coordinates that can move."""
    numbers = normal((around.objective.size,), around.seed, *parts).to(around.theta)
    return torch.where(around.scale == 0, 0, numbers)


def _report(around: Neighbourhood, done: int) -> None:
    if around.progress is not None:
        around.progress(done, 1 + (1 + around.restarts if around.restarts else 0))


def _bound(around: Neighbourhood) -> float:
    """The most that the second-order expansion of the loss rises; the loss itself may rise more."""
    slope = float(torch.linalg.vector_norm(around.scale * around.gradient, 1 if around.boxed else 2))
    operator = RescaledOperator(around.objective.hessian(around.theta), around.scale)
    top = eigenpairs(operator, 1, seed=around.seed)
    bent = max(float(top.values[0] + top.residuals[0]), 0.0) * (len(around.moving) if around.boxed else 1)
    return around.radius * slope + 0.5 * around.radius**2 * bent


def _climb(around: Neighbourhood, point: Tensor) -> tuple[float, Tensor]:
    there = around.theta + around.scale * point
    try:
        loss, gradient = around.objective.loss_and_gradient(there)
    except ValueError:
        loss = around.objective.loss(there)
        if math.isfinite(loss):
            raise
        return loss, point
    return loss, around.scale * gradient


def _write(theta: Tensor, e: Tensor, sign: int, out: Tensor) -> None:
    torch.add(theta, e, alpha=sign, out=out)
