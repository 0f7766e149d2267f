"""How much the loss rises around a model: one-step, maximised, adaptive and average-case sharpness.

Every kind is a scale T and a search. A perturbation is e = T z with z in a ball of the given radius (or Gaussian
with that standard deviation), so adaptive kinds (T = |w|) need no division by weights, which may be zero. Only
parameters move, never running statistics; loss and gradient use the same data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from landscape.errors import choose, positive, whole
from landscape.geometry.ascent import ascend, climb_corners, move_coordinates, steepest
from landscape.objectives.objective import Objective
from landscape.operators import RescaledOperator
from landscape.results import Progress, Sharpness, standard_error
from landscape.rng import key, normal
from landscape.runtime.workers import ordered_map
from landscape.spectrum.lanczos import eigenpairs

ETA = 0.01  # added to |w| by the published ASAM code
FEW = 24  # coordinates that are also moved one by one in a box
SWEEPS = 20  # most evaluations of that per coordinate
SHORT = 0.25  # radii per step of a second ascent in a ball with few coordinates
RESTARTS = (15, 3)  # random ones of a maximum, for few coordinates and for many


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
    restarts: int | None = None,
    ceiling: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Sharpness:
    """The rise L(theta + e) - L(theta) of the loss under perturbations of a given radius.

    sam               one step, e = radius g / ||g|| (Foret et al. 2021)
    sam_max           maximum over ||e||_2 <= radius, as far as searches find it; never below sam
    asam              one step under ||e / T||_p <= radius, T = |w| + 0.01 on weights and 1 elsewhere: the published
                      code of Kwon et al. 2021, where p=2 gives radius T^2 g / ||T g|| and p=inf radius T sign(g)
    asam_all          the same with T = |w| on every tensor: the convention of most SAM code
    asam_max          maximum over ||e / |w| ||_p <= radius (Andriushchenko et al. 2023); never below asam_all
    average           mean over e ~ N(0, radius^2 I), `samples` pairs +-e; no factor 1 / sqrt(size), so about
                      radius^2 trace(H) / 2
    average_adaptive  the same with e ~ N(0, radius^2 diag(w^2))
    keskar            100 max (L(theta + z) - L(theta)) / (1 + L(theta)) over |z_i| <= radius (|w_i| + 1), in per
                      cent (Keskar et al. 2017, with other searches than L-BFGS-B; their radius is 1e-3)

    A maximum that was found is a lower bound of the true one. One search climbs `steps` of projected ascent from the
    one-step point, another does from the highest of `restarts` short climbs from random points (by default 15, or 3
    with more than 24 coordinates; the seed decides which). `gap` says by how much the lower of the two fell short of
    the value: far from zero, more restarts or steps may still find more. In a box both go on from corner to corner,
    and coordinate by coordinate up to 24 of them. ceiling=True adds an upper bound to second order in the radius,
    radius ||T g||_q + radius^2 d lambda / 2 with lambda the largest eigenvalue of T H T (or 0), where q = 2, d = 1 for
    a ball and q = 1, d the number of coordinates for a box; it costs some dozens of Hessian products.

    m: m-sharpness, the mean over disjoint batches of m examples, each with its own e; its standard error is over
    batches. Smaller batches give larger values. Adaptive radii are about ten times those of sam.

    At a critical point sam_max is radius^2 lambda_max / 2 to second order; elsewhere radius ||g|| dominates.
    """
    choose("kind", kind, KINDS)
    positive("radius", radius)
    whole("steps", steps)
    whole("samples", samples)
    if restarts is not None:
        whole("restarts", restarts, least=0)
    if ceiling and kind not in MAXIMISED:
        raise ValueError(f"only the kinds {', '.join(MAXIMISED)} have a ceiling; got kind '{kind}'")
    if p != 2 and kind not in NORMED:
        raise ValueError(f"p is a choice of the kinds {', '.join(NORMED)}; kind '{kind}' takes none, got p={p}")
    if p not in (2, math.inf):
        raise ValueError(f"p must be 2 or inf, got {p}")
    search = partial(
        _search,
        theta=theta,
        kind=kind,
        radius=float(radius),
        p=float(p),
        effort=_Effort(steps, samples, restarts, ceiling),
    )
    if m is None:
        return search(objective, seed=seed, progress=progress)

    batches = objective.with_workers(1).split(whole("m", m))  # whole batches run side by side instead
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
class _Effort:
    """How long to search; as `sharpness` takes them."""

    steps: int
    samples: int
    restarts: int | None
    ceiling: bool


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
    effort: _Effort
    seed: int
    progress: Progress | None

    @property
    def boxed(self) -> bool:
        return math.isinf(self.p)

    @cached_property
    def moving(self) -> Tensor:
        """Coordinates that a perturbation can move."""
        return self.scale.nonzero().flatten()

    @property
    def restarts(self) -> int:
        few, many = RESTARTS
        return self.effort.restarts if self.effort.restarts is not None else few if len(self.moving) <= FEW else many

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
    gap: float = math.nan
    ceiling: float = math.nan
    point: Tensor | None = None  # the perturbation in units of the scale


def _search(
    objective: Objective,
    *,
    theta: Tensor,
    kind: str,
    radius: float,
    p: float,
    effort: _Effort,
    seed: int,
    progress: Progress | None = None,
) -> Sharpness:
    base, gradient = objective.loss_and_gradient(theta)
    theta = theta.detach().to(objective.device, objective.dtype)
    scale_of, search = KINDS[kind]
    scale = scale_of(objective, theta)
    scale[objective.layout.parameters[-1].stop :] = 0
    p = math.inf if kind == "keskar" else p
    problem = _Problem(objective, theta, base, gradient, scale, radius, p, effort, seed, progress)
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
        gap=found.gap,
        ceiling=found.ceiling,
    )


def _one_step(problem: _Problem) -> _Found:
    """Linearise the loss: the best z is the radius times the steepest direction of T g."""
    slope = problem.scale * problem.gradient
    if not slope.any():
        return _Found(0.0, torch.zeros_like(problem.theta), 0)
    perturbation = problem.scale * (problem.radius * steepest(slope, problem.p))
    return _Found(problem.rise(perturbation), perturbation, 1)


def _maximum(problem: _Problem) -> _Found:
    """The highest of standing still, one step, and two searches that know nothing of each other."""
    stay = _Found(0.0, torch.zeros_like(problem.theta), 0)
    first = _one_step(problem)
    slope = problem.scale * problem.gradient
    towards = slope if bool(slope.any()) else _direction(problem, "ascent")
    searches = [_climb_on(problem, problem.radius * steepest(towards, problem.p))]
    _report(problem, 1)
    if problem.restarts:
        searches.append(_restart(problem))
    best = _highest([stay, first, *searches])
    ceiling = _ceiling(problem) if problem.effort.ceiling else math.nan
    gap = best.value - min(found.value for found in searches) if problem.restarts else math.nan
    spent = first.evaluations + sum(found.evaluations for found in searches)
    return replace(best, evaluations=spent, gap=gap, ceiling=ceiling)


def _restart(problem: _Problem) -> _Found:
    """Short climbs from random points, and a long one from where the highest of them ended."""
    short = -(-problem.effort.steps // 4)
    tried = []
    for index in range(problem.restarts):
        start = problem.radius * steepest(_direction(problem, "restart", index), problem.p)
        if problem.boxed:
            tried.append(_polish(problem, start, 0))
        else:
            point, spent = ascend(partial(_climb, problem), start, problem.radius, p=problem.p, steps=short)
            tried.append(_measure(problem, point, spent))
        _report(problem, 2 + index)
    best = _highest(tried)
    final = _climb_on(problem, best.point) if best.point is not None and math.isfinite(best.value) else best
    _report(problem, 2 + problem.restarts)
    return replace(_highest([best, final]), evaluations=sum(found.evaluations for found in (*tried, final)))


def _climb_on(problem: _Problem, start: Tensor) -> _Found:
    """All steps of ascent, then what only a box has: corners and single coordinates."""
    steps = problem.effort.steps
    point, spent = ascend(partial(_climb, problem), start, problem.radius, p=problem.p, steps=steps)
    if problem.boxed:
        return _polish(problem, point, spent)
    if len(problem.moving) <= FEW:  # long steps miss a top between steep falls
        point, more = ascend(partial(_climb, problem), point, problem.radius, p=problem.p, steps=steps, first=SHORT)
        spent += more
    return _measure(problem, point, spent)


def _polish(problem: _Problem, start: Tensor, spent: int) -> _Found:
    """From corner to corner of the box, and coordinate by coordinate where there are few."""
    point, more = climb_corners(partial(_climb, problem), start, problem.radius, steps=problem.effort.steps)
    spent += more
    if len(problem.moving) <= FEW:
        most = SWEEPS * len(problem.moving)
        point, more = move_coordinates(
            lambda z: problem.rise(problem.scale * z), point, problem.radius, problem.moving.tolist(), most=most
        )
        spent += more
    return _measure(problem, point, spent)


def _measure(problem: _Problem, point: Tensor, spent: int) -> _Found:
    """The rise at a point, again without gradients: the one-step value is, and kernels may round differently."""
    perturbation = problem.scale * point
    return _Found(problem.rise(perturbation), perturbation, spent + 1, point=point)


def _highest(found: Sequence[_Found]) -> _Found:
    """The first of the highest; a loss that is not a number anywhere leaves no maximum."""
    undefined = [one for one in found if math.isnan(one.value)]
    return undefined[0] if undefined else max(found, key=lambda one: one.value)


def _direction(problem: _Problem, *parts: str | int) -> Tensor:
    """Standard Gaussian numbers for the coordinates that can move."""
    numbers = normal((problem.objective.size,), problem.seed, *parts).to(problem.theta)
    return torch.where(problem.scale == 0, 0, numbers)


def _report(problem: _Problem, done: int) -> None:
    if problem.progress is not None:
        problem.progress(done, 1 + (1 + problem.restarts if problem.restarts else 0))


def _ceiling(problem: _Problem) -> float:
    """At most the second-order expansion of the loss rises by this; the loss itself may do otherwise."""
    slope = float(torch.linalg.vector_norm(problem.scale * problem.gradient, 1 if problem.boxed else 2))
    operator = RescaledOperator(problem.objective.hessian(problem.theta), problem.scale)
    top = eigenpairs(operator, 1, seed=problem.seed)
    bent = max(float(top.values[0] + top.residuals[0]), 0.0) * (len(problem.moving) if problem.boxed else 1)
    return problem.radius * slope + 0.5 * problem.radius**2 * bent


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
    unit = 100 / (1 + problem.base)
    return replace(found, value=unit * found.value, gap=unit * found.gap, ceiling=unit * found.ceiling)


def _average(problem: _Problem) -> _Found:
    """Antithetic pairs: the mean over +-e has no first-order term, so the gradient adds no variance."""

    def points() -> Iterator[Callable[[Tensor], object]]:
        for index in range(problem.effort.samples):
            e = problem.radius * problem.noise("average", index)
            for sign in (1, -1):
                yield partial(_write, problem.theta, e, sign)

    losses = []
    for evaluation in problem.objective.evaluate_each(points()):
        losses.append(evaluation.loss)
        if problem.progress is not None and len(losses) % 2 == 0:
            problem.progress(len(losses) // 2, problem.effort.samples)
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
MAXIMISED = ("sam_max", "asam_max", "keskar")


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
        gap=float(weights @ [answer.gap for answer in found]),
        ceiling=float(weights @ [answer.ceiling for answer in found]),
    )
