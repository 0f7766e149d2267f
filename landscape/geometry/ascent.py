"""Searches for the highest loss in a ball or a box, as the maximised kinds of sharpness need them.

`ascend` is APGD (Croce and Hein 2020) as Andriushchenko et al. 2023 use it: steps of twice the radius with momentum,
halved at certain steps where progress has stalled. It differs from their code in three ways: after a halving the
momentum restarts together with the position, a loss that is not finite ends the ascent, and so does a point that no
longer moves. A box has its highest points mostly in corners: `climb_corners` goes from corner to corner by the signs
of the gradient, and `move_coordinates` tries one coordinate after the other if there are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import cycle

import torch
from torch import Tensor

from landscape.runtime.device import compute_norm

MOMENTUM = 0.75  # weight of the new step; the rest repeats the previous move
IMPROVING = 0.75  # share of the steps since the last test that must have raised the loss

Slope = Callable[[Tensor], tuple[float, Tensor]]  # loss and gradient at a point; the gradient of inf is not read
FEWER = 4  # a move of coordinates that does not rise is tried again with a quarter of them


def ascend(
    slope: Slope, start: Tensor, radius: float, *, p: float = 2.0, steps: int = 20, first: float = 2.0
) -> tuple[Tensor, int]:
    """Climb within ||z||_p <= radius; return the highest point and the evaluations spent.

    slope: gives loss and gradient at a point.
    start: where to begin.
    radius: of the ball or box.
    p: 2 for a ball, infinity for a box.
    steps: the most steps.
    first: length of the first steps, in radii.
    """
    point = previous = project(start, radius, p)
    loss, gradient = slope(point)
    if not math.isfinite(loss):
        return point, 1
    best = (loss, gradient, point)
    rate, risen, since, kept, highest_then = first * radius, 0, 0, False, loss
    for step in range(1, steps + 1):
        target = project(point + rate * find_steepest(gradient, p), radius, p)
        if loss >= best[0] and torch.equal(target, point) and torch.equal(point, previous):
            return point, step  # at the best point, and every further step would stay there
        moved = point + MOMENTUM * (target - point) + (1 - MOMENTUM) * (point - previous)
        previous, point = point, project(moved, radius, p)
        before = loss
        loss, gradient = slope(point)
        if not math.isfinite(loss):
            return point, step + 1
        risen += loss > before
        if loss > best[0]:
            best = (loss, gradient, point)
        if step in list_halving_steps(steps):
            stalled = kept and best[0] <= highest_then
            kept = risen >= IMPROVING * (step - since) and not stalled
            if not kept:
                rate /= 2
                loss, gradient, point = best
                previous = point
            risen, since, highest_then = 0, step, best[0]
    return best[2], steps + 1


def climb_corners(slope: Slope, start: Tensor, radius: float, *, steps: int = 20) -> tuple[Tensor, int]:
    """Go from corner to corner of the box |z_i| <= radius; return the highest point and the evaluations spent.

    slope: gives loss and gradient at a point; the gradient points to the next corner.
    start: where to begin.
    radius: half of the box's width.
    steps: one less than the most evaluations.

    If moving all coordinates at once does not raise the loss, only the most promising quarter of them moves, then a
    quarter of those, and so on.
    """
    point = project(start, radius, math.inf)
    loss, gradient = slope(point)
    spent, count = 1, point.numel()
    while math.isfinite(loss) and spent <= steps:
        corner = torch.where(gradient == 0, point, radius * gradient.sign())
        promised = gradient * (corner - point)
        count = min(count, int((promised > 0).sum()))
        if count == 0:
            break
        chosen = promised.topk(count).indices
        moved = point.clone()
        moved[chosen] = corner[chosen]
        higher, new_gradient = slope(moved)
        spent += 1
        if higher > loss or not math.isfinite(higher):
            point, loss, gradient, count = moved, higher, new_gradient, point.numel()
        else:
            count //= FEWER
    return point, spent


def move_coordinates(
    height: Callable[[Tensor], float], start: Tensor, radius: float, coordinates: Sequence[int], *, most: int
) -> tuple[Tensor, int]:
    """Move one coordinate at a time until none raises the loss; return the highest point and the evaluations spent.

    height: gives the loss at a point.
    start: where to begin.
    radius: every coordinate stays within |z_i| <= radius.
    coordinates: numbers of those that may move.
    most: about the most evaluations.

    A coordinate tries both ends of its range and, from between them, the top of the parabola through the three.
    """
    point, loss, spent, unmoved = start, height(start), 1, 0
    for index in cycle(coordinates):
        if unmoved == len(coordinates) or spent >= most or not math.isfinite(loss):
            break
        here = float(point[index])
        ends = [end for end in (-radius, radius) if end != here]
        tried = [(here, loss), *((end, height(_replace(point, index, end))) for end in ends)]
        top = _find_top(tried, radius)
        if top is not None:
            tried.append((top, height(_replace(point, index, top))))
        spent += len(tried) - 1
        value, higher = max(tried, key=lambda pair: pair[1])  # the first of equals: it stays rather than moves
        unmoved += 1
        if higher > loss:
            point, loss, unmoved = _replace(point, index, value), higher, 1
    return point, spent


def _replace(point: Tensor, index: int, value: float) -> Tensor:
    moved = point.clone()
    moved[index] = value
    return moved


def _find_top(tried: Sequence[tuple[float, float]], radius: float) -> float | None:
    """Where the parabola through three points is highest, if that is inside; None where it opens upwards."""
    if len(tried) < 3:
        return None
    (a, fa), (b, fb), (c, fc) = tried
    left, right = (fb - fa) / (b - a), (fc - fa) / (c - a)
    bend = (right - left) / (c - b)
    if not (bend < 0 and math.isfinite(bend) and math.isfinite(left)):
        return None
    top = (a + b) / 2 - left / (2 * bend)
    return top if abs(top) < radius else None


def find_steepest(gradient: Tensor, p: float) -> Tensor:
    """The direction of unit p-norm that raises the loss fastest; zero at a critical point."""
    if math.isinf(p):
        return gradient.sign()
    norm = compute_norm(gradient)
    return gradient / norm.to(gradient) if norm > 0 else torch.zeros_like(gradient)


def project(point: Tensor, radius: float, p: float) -> Tensor:
    """The nearest point of the ball ||z||_p <= radius, for p = 2 or infinity."""
    if math.isinf(p):
        return point.clamp(-radius, radius)
    norm = float(compute_norm(point))
    return point * (radius / norm) if norm > radius else point


def list_halving_steps(steps: int) -> set[int]:
    """The steps after which the rate may be halved: 22 % of all, then at intervals that shrink from 19 % to 6 %."""
    percent, interval = 22, 22
    found = set()
    while percent <= 100:
        found.add(-(-percent * steps // 100))
        interval = max(interval - 3, 6)
        percent += interval
    return found
