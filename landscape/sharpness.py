"""How much the loss rises around a model: one-step, maximised, adaptive and average-case sharpness.

Every kind is a scale T and a search. A perturbation is e = T z with z in a ball of the given radius (or Gaussian
with that standard deviation), so adaptive kinds (T = |w|) need no division by weights, which may be zero. Only
parameters move, never running statistics; loss and gradient use the same data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from landscape.ascent import ascend, steepest
from landscape.errors import choose, positive, whole
from landscape.objective import Objective
from landscape.operators import RescaledOperator
from landscape.results import Progress, Sharpness, standard_error
from landscape.rng import key, normal
from landscape.workers import ordered_map

ETA = 0.01  # added to |w| by the published ASAM code


def sharpness(
    objective: Objective,
    theta: Tensor,
    radius: float = 0.05,
    kind: str = "sam",
    *,
    steps: int = 20,
    samples: int = 32,
    m: int | None = None,
    p: float = 2,
    seed: int = 0,
    progress: Progress | None = None,
) -> Sharpness:
    """The rise L(theta + e) - L(theta) of the loss under perturbations of a given radius.

    sam               one step, e = radius g / ||g|| (Foret et al. 2021)
    sam_max           maximum over ||e||_2 <= radius, by `steps` of projected ascent; never below sam
    asam              one step under ||e / T||_p <= radius, T = |w| + 0.01 on weights and 1 elsewhere: the published
                      code of Kwon et al. 2021, where p=2 gives radius T^2 g / ||T g|| and p=inf radius T sign(g)
    asam_all          the same with T = |w| on every tensor: the convention of most SAM code
    asam_max          maximum over ||e / |w| ||_p <= radius (Andriushchenko et al. 2023); never below asam_all
    average           mean over e ~ N(0, radius^2 I), `samples` pairs +-e; no factor 1 / sqrt(size), so about
                      radius^2 trace(H) / 2
    average_adaptive  the same with e ~ N(0, radius^2 diag(w^2))
    keskar            100 max (L(theta + z) - L(theta)) / (1 + L(theta)) over |z_i| <= radius (|w_i| + 1), in per
                      cent (Keskar et al. 2017, with projected ascent for L-BFGS-B; their radius is 1e-3)

    m: m-sharpness, the mean over disjoint batches of m examples, each with its own e; its standard error is over
    batches. Smaller batches give larger values. Adaptive radii are about ten times those of sam.

    At a critical point sam_max is radius^2 lambda_max / 2 to second order; elsewhere radius ||g|| dominates.
    """
    choose("kind", kind, KINDS)
    positive("radius", radius)
    whole("steps", steps)
    whole("samples", samples)
    if p != 2 and kind not in NORMED:
        raise ValueError(f"p is a choice of the kinds {', '.join(NORMED)}; kind '{kind}' takes none, got p={p}")
    if p not in (2, math.inf):
        raise ValueError(f"p must be 2 or inf, got {p}")
    search = partial(_search, theta=theta, kind=kind, radius=float(radius), steps=steps, samples=samples, p=float(p))
    if m is None:
        return search(objective, seed=seed, progress=progress)

    batches = objective.split(whole("m", m))
    for batch in batches:
        batch.workers = 1  # whole batches run side by side instead
    tasks = enumerate(batches)
    found = []
    for answer in ordered_map(lambda task: search(task[1], seed=key(seed, "batch", task[0])), tasks, objective.workers):
        found.append(answer)
        if progress is not None:
            progress(len(found), len(batches))
    return _mean_over(found, [batch.count for batch in batches], m)


def adaptive_operator(objective: Objective, theta: Tensor) -> RescaledOperator:
    """diag|w| H diag|w|: its largest eigenvalue is the curvature that adaptive sharpness sees.

    It does not change when a ReLU network is rescaled without changing its function; lambda_max of H does.
    """
    return RescaledOperator(objective.hessian(theta), theta.detach().abs())


@dataclass(frozen=True)
class _Problem:
    """What a search needs: the loss around theta in units of the scale T."""

    objective: Objective
    theta: Tensor  # (size,)
    base: float
    gradient: Tensor  # (size,) zero on running statistics
    scale: Tensor  # (size,) T, zero on running statistics
    radius: float
    p: float
    steps: int
    samples: int
    seed: int
    progress: Progress | None

    def rise(self, perturbation: Tensor) -> float:
        return self.objective.loss(self.theta + perturbation) - self.base

    def noise(self, *parts: str | int) -> Tensor:
        """T times standard Gaussian numbers."""
        return self.scale * normal((self.objective.size,), self.seed, *parts).to(self.theta)


@dataclass(frozen=True)
class _Found:
    value: float
    perturbation: Tensor | None
    evaluations: int
    standard_error: float = math.nan


def _search(
    objective: Objective,
    *,
    theta: Tensor,
    kind: str,
    radius: float,
    p: float,
    steps: int,
    samples: int,
    seed: int,
    progress: Progress | None = None,
) -> Sharpness:
    base, gradient = objective.loss_and_gradient(theta)
    theta = theta.detach().to(objective.device, objective.dtype)
    scale_of, search = KINDS[kind]
    scale = scale_of(objective, theta)
    scale[objective.layout.parameters[-1].stop :] = 0
    p = math.inf if kind == "keskar" else p
    problem = _Problem(objective, theta, base, gradient, scale, radius, p, steps, samples, seed, progress)
    found = search(problem)
    return Sharpness(
        value=found.value,
        base=base,
        gradient_norm=float(torch.linalg.vector_norm(gradient, dtype=torch.float64)),
        radius=radius,
        kind=kind,
        standard_error=found.standard_error,
        perturbation=found.perturbation,
        evaluations=1 + found.evaluations,
        p=p,
    )


def _one_step(problem: _Problem) -> _Found:
    """Linearise the loss: the best z is the radius times the steepest direction of T g."""
    slope = problem.scale * problem.gradient
    if not slope.any():
        return _Found(0.0, torch.zeros_like(problem.theta), 0)
    perturbation = problem.scale * (problem.radius * steepest(slope, problem.p))
    return _Found(problem.rise(perturbation), perturbation, 1)


def _maximum(problem: _Problem) -> _Found:
    """Climb from the one-step point, or from a random one where the gradient vanishes, and keep the best."""
    stay = _Found(0.0, torch.zeros_like(problem.theta), 0)
    first = _one_step(problem)
    slope = problem.scale * problem.gradient
    towards = slope if bool(slope.any()) else problem.noise("ascent")
    start = problem.radius * steepest(towards, problem.p)
    point, spent = ascend(
        partial(_climb, problem), start, problem.radius, p=problem.p, steps=problem.steps, progress=problem.progress
    )
    perturbation = problem.scale * point
    # measured again without gradients: the one-step value is, and kernels may round differently
    climbed = _Found(problem.rise(perturbation), perturbation, 1)
    best = climbed if math.isnan(climbed.value) else max(stay, first, climbed, key=lambda found: found.value)
    return replace(best, evaluations=first.evaluations + spent + 1)


def _climb(problem: _Problem, point: Tensor) -> tuple[float, Tensor]:
    there = problem.theta + problem.scale * point
    try:
        loss, gradient = problem.objective.loss_and_gradient(there)
    except ValueError:
        loss = problem.objective.loss(there)
        if math.isfinite(loss):
            raise
        return loss, point
    return loss, problem.scale * gradient


def _percent(problem: _Problem) -> _Found:
    if problem.base <= -1:
        raise ValueError(f"keskar divides by 1 + loss, which needs a loss above -1; got {problem.base}")
    found = _maximum(problem)
    return replace(found, value=100 * found.value / (1 + problem.base))


def _average(problem: _Problem) -> _Found:
    """Antithetic pairs: the mean over +-e has no first-order term, so the gradient adds no variance."""

    def points() -> Iterator[Callable[[Tensor], object]]:
        for index in range(problem.samples):
            e = problem.radius * problem.noise("average", index)
            for sign in (1, -1):
                yield partial(_write, problem.theta, e, sign)

    losses = []
    for evaluation in problem.objective.evaluate_each(points()):
        losses.append(evaluation.loss)
        if problem.progress is not None and len(losses) % 2 == 0:
            problem.progress(len(losses) // 2, problem.samples)
    rises = np.asarray(losses).reshape(-1, 2).mean(axis=1) - problem.base
    return _Found(float(rises.mean()), None, len(losses), standard_error(rises))


def _write(theta: Tensor, e: Tensor, sign: int, place: Tensor) -> None:
    torch.add(theta, e, alpha=sign, out=place)


def _unit(objective: Objective, theta: Tensor) -> Tensor:
    return torch.ones_like(theta)


def _magnitude(objective: Objective, theta: Tensor) -> Tensor:
    return theta.abs()


def _box(objective: Objective, theta: Tensor) -> Tensor:
    return theta.abs() + 1


def _published(objective: Objective, theta: Tensor) -> Tensor:
    """|w| + eta on weights, those of norm layers among them: the published code goes by "weight" in the name."""
    scale = torch.ones_like(theta)
    for entry in objective.layout.parameters:
        if entry.kind == "weight" or "weight" in entry.name:
            place = slice(entry.start, entry.stop)
            scale[place] = theta[place].abs() + ETA
    return scale


Scale = Callable[[Objective, Tensor], Tensor]
Search = Callable[[_Problem], _Found]
KINDS: dict[str, tuple[Scale, Search]] = {
    "sam": (_unit, _one_step),
    "sam_max": (_unit, _maximum),
    "asam": (_published, _one_step),
    "asam_all": (_magnitude, _one_step),
    "asam_max": (_magnitude, _maximum),
    "average": (_unit, _average),
    "average_adaptive": (_magnitude, _average),
    "keskar": (_box, _percent),
}
NORMED = ("asam", "asam_all", "asam_max")  # kinds with a choice of p


def _mean_over(found: list[Sharpness], sizes: list[int], m: int) -> Sharpness:
    """The mean over batches by their sizes, and its standard error (equal sizes: deviation / sqrt(batches))."""
    weights = np.asarray(sizes) / sum(sizes)
    values = np.asarray([answer.value for answer in found])
    mean = float(weights @ values)
    count = len(values)
    error = found[0].standard_error
    if count > 1:
        error = math.sqrt(count / (count - 1) * float(weights**2 @ (values - mean) ** 2))
    return replace(
        found[0],
        value=mean,
        base=float(weights @ [answer.base for answer in found]),
        gradient_norm=float(weights @ [answer.gradient_norm for answer in found]),
        standard_error=error,
        perturbation=None,
        evaluations=sum(answer.evaluations for answer in found),
        m=m,
    )
