"""Projected gradient ascent in a ball: how the maximised kinds of sharpness find the highest loss.

APGD (Croce and Hein 2020) as Andriushchenko et al. 2023 use it: steps of twice the radius with momentum, halved
at checkpoints where progress has stalled. Two departures from their code: after a halving the momentum restarts
together with the position, and a loss that is not finite ends the ascent.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from landscape.results import Progress

MOMENTUM = 0.75  # weight of the new step; the rest repeats the previous move
IMPROVING = 0.75  # share of the steps since the last checkpoint that must have raised the loss

Climb = Callable[[Tensor], tuple[float, Tensor]]  # loss and gradient at a point; the gradient of inf is not read


def ascend(
    climb: Climb, start: Tensor, radius: float, *, p: float = 2.0, steps: int = 20, progress: Progress | None = None
) -> tuple[Tensor, int]:
    """The highest point of ||z||_p <= radius met on the way up from `start`, and the evaluations spent."""
    point = previous = project(start, radius, p)
    loss, gradient = climb(point)
    if not math.isfinite(loss):
        return point, 1
    best = (loss, gradient, point)
    rate, risen, since, kept, highest_then = 2 * radius, 0, 0, False, loss
    for step in range(1, steps + 1):
        target = project(point + rate * steepest(gradient, p), radius, p)
        moved = point + MOMENTUM * (target - point) + (1 - MOMENTUM) * (point - previous)
        previous, point = point, project(moved, radius, p)
        before = loss
        loss, gradient = climb(point)
        if not math.isfinite(loss):
            return point, step + 1
        risen += loss > before
        if loss > best[0]:
            best = (loss, gradient, point)
        if step in checkpoints(steps):
            stalled = kept and best[0] <= highest_then
            kept = risen >= IMPROVING * (step - since) and not stalled
            if not kept:
                rate /= 2
                loss, gradient, point = best
                previous = point
            risen, since, highest_then = 0, step, best[0]
        if progress is not None:
            progress(step, steps)
    return best[2], steps + 1


def steepest(gradient: Tensor, p: float) -> Tensor:
    """The direction of unit p-norm that raises the loss fastest; zero at a critical point."""
    if math.isinf(p):
        return gradient.sign()
    norm = torch.linalg.vector_norm(gradient, dtype=torch.float64)
    return gradient / norm.to(gradient.dtype) if norm > 0 else torch.zeros_like(gradient)


def project(point: Tensor, radius: float, p: float) -> Tensor:
    """The nearest point of the ball ||z||_p <= radius, for p = 2 or infinity."""
    if math.isinf(p):
        return point.clamp(-radius, radius)
    norm = float(torch.linalg.vector_norm(point, dtype=torch.float64))
    return point * (radius / norm) if norm > radius else point


def checkpoints(steps: int) -> set[int]:
    """Steps at which the rate may be halved: 22 % of all, then at intervals that shrink from 19 % to 6 %."""
    percent, interval = 22, 22
    found = set()
    while percent <= 100:
        found.add(-(-percent * steps // 100))
        interval = max(interval - 3, 6)
        percent += interval
    return found
