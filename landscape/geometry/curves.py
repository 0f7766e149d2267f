"""Curved paths between models, trained to stay low (Garipov et al. 2018).

bezier   phi(t) = (1-t)^2 start + 2t(1-t) bend + t^2 end
polygon  two straight segments that meet in the bend at t = 1/2

The bend minimises E_{t~U(0,1)} L(phi(t)). It starts in the middle of the straight path and takes Adam steps along
dphi/dbend times the full gradient at phi(t), with one keyed t per step. The default rate is a twentieth of the models'
root-mean-square distance per weight, falling linearly to zero: Adam moves every weight by about the rate, so a hundred
steps can carry the bend a few times the distance between the models, whatever the scale of weights or loss, and the
last ones average the noise of t away.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from landscape.errors import choose, positive, whole
from landscape.geometry.surface import Point, coordinates, sample, vector
from landscape.objectives.objective import Objective
from landscape.progress import with_bar
from landscape.results import Array, Curve, Progress
from landscape.rng import numpy_generator
from landscape.runtime.device import to_float64

Weights = tuple[float, float, float]  # of start, bend and end; they sum to one
Models = tuple[Tensor, Tensor, Tensor]  # start, bend and end


@with_bar("curve")
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
    """Find a curve of low loss between two models, and evaluate loss and error along it.

    objective: the loss that is lowered and evaluated.
    start: the model at t = 0.
    end: the model at t = 1.
    kind: "bezier" or "polygon" (see the module).
    iterations: training steps; 0 leaves the path straight.
    lr: rate of the first step; by default a twentieth of the models' root-mean-square distance per weight.
    seed: of the random t.
    points: evaluations along the curve, evenly spaced in t.
    progress: called with (steps and evaluations done, in all); by default a bar, see `landscape.show_progress`.
    """
    weights = CURVES[choose("kind", kind, CURVES)]
    whole("iterations", iterations, least=0)
    whole("points", points, least=2)
    first, last = vector(objective, start, "start"), vector(objective, end, "end")
    distance = float((to_float64(last) - to_float64(first)).norm())
    if distance == 0:
        raise ValueError("start and end are equal: a curve needs two different models")
    rate = 0.05 * distance / math.sqrt(objective.size) if lr is None else positive("lr", lr)
    times = numpy_generator(seed, "curve").random(iterations)
    training = None if progress is None else (lambda done: progress(done, iterations + points))
    models = (first, 0.5 * (first + last), last)
    _train_bend(objective, models, weights, times, rate, training)
    x = coordinates(0.0, 1.0, points)
    shift = None if progress is None else (lambda done, _: progress(iterations + done, iterations + points))
    path = sample(objective, x, lambda t, flat: _combine(models, weights(t), flat), progress=shift)
    lengths = _measure_segments(models, np.array([weights(float(t)) for t in x]))
    middles = 0.5 * (path.loss[:-1] + path.loss[1:])
    return Curve(
        kind=kind,
        bend=models[1],
        path=path,
        length=float(lengths.sum()),
        min=float(path.loss.min()),
        max=float(path.loss.max()),
        mean=float(path.loss.mean()),
        arc_mean=float((middles * lengths).sum() / lengths.sum()),
    )


def _train_bend(
    objective: Objective,
    models: Models,
    weights: Callable[[float], Weights],
    times: Array,
    rate: float,
    report: Callable[[int], object] | None,
) -> None:
    """Lower the mean loss along the curve by moving the bend, in place."""
    bend = models[1]
    optimizer = torch.optim.Adam([bend], lr=rate)
    theta = torch.empty_like(bend)
    for step, t in enumerate(times):
        share = weights(float(t))
        _combine(models, share, theta)
        try:
            gradient = objective.gradient(theta)
        except ValueError as error:
            raise ValueError(f"step {step} of the curve: {error}. Try lr below {rate:.3g}") from error
        bend.grad = share[1] * gradient
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / len(times))
        optimizer.step()
        if report is not None:
            report(step + 1)
    bend.grad = None


def _weigh_bezier(t: float) -> Weights:
    return (1 - t) ** 2, 2 * t * (1 - t), t**2


def _weigh_polygon(t: float) -> Weights:
    return max(1 - 2 * t, 0.0), 1 - abs(2 * t - 1), max(2 * t - 1, 0.0)


CURVES: dict[str, Callable[[float], Weights]] = {"bezier": _weigh_bezier, "polygon": _weigh_polygon}


def _combine(models: Models, weights: Weights, out: Tensor) -> None:
    torch.mul(models[0], weights[0], out=out).add_(models[1], alpha=weights[1]).add_(models[2], alpha=weights[2])


def _measure_segments(models: Models, weights: Array) -> Array:
    """Distances between neighbouring points of the curve, from inner products instead of long vectors."""
    bend = to_float64(models[1])
    sides = torch.stack([to_float64(models[0]) - bend, to_float64(models[2]) - bend])
    gram = (sides @ sides.T).cpu().numpy()
    steps = np.diff(weights[:, [0, 2]], axis=0)
    return np.asarray(np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", steps, gram, steps), 0.0)))
