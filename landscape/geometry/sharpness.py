"""How much the loss rises around a model: one-step, maximised, adaptive and average-case sharpness.

Every kind is a scale T and a search (`landscape.geometry.perturbations`):

sam               one step, e = radius g / ||g|| (Foret et al. 2021)
sam_max           maximum over ||e||_2 <= radius, as far as searches find it; never below sam
asam              one step under ||e / T||_p <= radius, T = |w| + 0.01 on weights and 1 elsewhere: the published code
                  of Kwon et al. 2021, where p=2 gives radius T^2 g / ||T g|| and p=inf radius T sign(g)
asam_all          the same with T = |w| on every tensor: the convention of most SAM code
asam_max          maximum over ||e / |w| ||_p <= radius (Andriushchenko et al. 2023); never below asam_all
average           mean over e ~ N(0, radius^2 I); no factor 1 / sqrt(size), so about radius^2 trace(H) / 2
average_adaptive  the same with e ~ N(0, radius^2 diag(w^2))
keskar            100 max (L(theta + z) - L(theta)) / (1 + L(theta)) over |z_i| <= radius (|w_i| + 1), in per cent
                  (Keskar et al. 2017, with other searches than L-BFGS-B; their radius is 1e-3)

A maximum that was found is a lower bound of the true one. One search climbs by projected ascent from the one-step
point, another from the highest of some short climbs from random points. `gap` of the result says by how much the lower
of the two fell short of the value: if it is far from zero, more restarts or steps may find more. In a box both
continue from corner to corner, and coordinate by coordinate if there are at most 24.

The ceiling is an upper bound to second order in the radius, radius ||T g||_q + radius^2 d lambda / 2, with lambda the
largest eigenvalue of T H T (or 0), where q = 2 and d = 1 for a ball, q = 1 and d the number of coordinates for a box.

At a critical point sam_max is radius^2 lambda_max / 2 to second order; elsewhere radius ||g|| dominates. Adaptive radii
are about ten times those of sam.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from landscape.errors import choose, positive, whole
from landscape.geometry.perturbations import (
    Effort,
    Neighbourhood,
    Rise,
    average_random,
    maximise,
    maximise_percentage,
    take_one_step,
)
from landscape.objectives.objective import Objective
from landscape.operators import RescaledOperator
from landscape.progress import with_bar
from landscape.results import Progress, Sharpness
from landscape.rng import key
from landscape.runtime.device import compute_norm
from landscape.runtime.workers import ordered_map

ETA = 0.01  # added to |w| by the published ASAM code


@with_bar("sharpness")
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
    """Measure the rise L(theta + e) - L(theta) of the loss under perturbations e of a given radius.

    objective: the loss.
    theta: where to measure.
    radius: of the perturbations.
    kind: one of KINDS: sam, sam_max, asam, asam_all, asam_max, average, average_adaptive, keskar (see the module).
    steps: of one ascent, for maximised kinds.
    samples: pairs of perturbations +-e, for average kinds.
    m: number of examples per batch for m-sharpness, the mean over disjoint batches that have an e each; its standard
        error is over batches, and smaller batches give larger values. None: all data at once.
    p: norm of the constraint of the asam kinds, 2 or infinity.
    restarts: random points that maximised kinds also climb from; by default 15, or 3 beyond 24 coordinates.
    ceiling: whether to bound a maximum from above as well, which costs some dozens of Hessian products.
    seed: of everything random.
    progress: called with (units done, units in all); by default a bar, see `landscape.show_progress`.

    >>> objective = Objective(torch.nn.Linear(1, 1, bias=False), (torch.ones(1, 1), torch.zeros(1, 1)),
    ...                       loss=torch.nn.functional.mse_loss)
    >>> round(sharpness(objective, torch.tensor([1.0]), radius=0.5).value, 4)  # 1.5^2 - 1
    1.25
    """
    _check_settings(kind, p, ceiling, restarts)
    effort = Effort(whole("steps", steps), whole("samples", samples), restarts, ceiling)
    radius = float(positive("radius", radius))
    search = partial(_search, theta=theta, kind=kind, radius=radius, p=float(p), effort=effort)
    if m is None:
        return search(objective, seed=seed, progress=progress)
    batches = objective.with_workers(1).split(whole("m", m))  # whole batches run side by side instead
    tasks = enumerate(batches)
    found = []
    for answer in ordered_map(lambda task: search(task[1], seed=key(seed, "batch", task[0])), tasks, objective.workers):
        found.append(answer)
        if progress is not None:
            progress(len(found), len(batches))
    return _average_batches(found, [batch.count for batch in batches], m)


def adaptive_operator(objective: Objective, theta: Tensor) -> RescaledOperator:
    """Return diag|w| H diag|w|, whose largest eigenvalue is the curvature that adaptive sharpness measures.

    objective: the loss. theta: the parameters w at which H is taken.

    It does not change when a ReLU network is rescaled without changing its function; lambda_max of H does.
    """
    return RescaledOperator(objective.hessian(theta), theta.detach().abs())


def _check_settings(kind: str, p: float, ceiling: bool, restarts: int | None) -> None:
    choose("kind", kind, KINDS)
    if restarts is not None:
        whole("restarts", restarts, least=0)
    if ceiling and kind not in MAXIMISED:
        raise ValueError(f"only the kinds {', '.join(MAXIMISED)} have a ceiling; got kind '{kind}'")
    if p != 2 and kind not in NORMED:
        raise ValueError(f"p is a choice of the kinds {', '.join(NORMED)}; kind '{kind}' takes none, got p={p}")
    if p not in (2, math.inf):
        raise ValueError(f"p must be 2 or inf, got {p}")


def _search(
    objective: Objective,
    *,
    theta: Tensor,
    kind: str,
    radius: float,
    p: float,
    effort: Effort,
    seed: int,
    progress: Progress | None = None,
) -> Sharpness:
    base, gradient = objective.loss_and_gradient(theta)
    theta = theta.detach().to(objective.device, objective.dtype)
    scale_of, search = KINDS[kind]
    scale = scale_of(objective, theta)
    scale[objective.layout.parameter_count :] = 0
    p = math.inf if kind == "keskar" else p
    around = Neighbourhood(objective, theta, base, gradient, scale, radius, p, effort, seed, progress)
    found = search(around)
    return Sharpness(
        value=found.value,
        base=base,
        gradient_norm=float(compute_norm(gradient)),
        radius=radius,
        kind=kind,
        standard_error=found.standard_error,
        perturbation=found.perturbation,
        evaluations=1 + found.evaluations,
        p=p,
        gap=found.gap,
        ceiling=found.ceiling,
    )


def _scale_none(objective: Objective, theta: Tensor) -> Tensor:
    return torch.ones_like(theta)


def _scale_by_magnitude(objective: Objective, theta: Tensor) -> Tensor:
    return theta.abs()


def _scale_by_magnitude_plus_one(objective: Objective, theta: Tensor) -> Tensor:
    return theta.abs() + 1


def _scale_as_published(objective: Objective, theta: Tensor) -> Tensor:
    """|w| + eta on weights, those of norm layers among them: the published code goes by "weight" in the name."""
    scale = torch.ones_like(theta)
    for entry in objective.layout.parameters:
        if entry.kind == "weight" or "weight" in entry.name:
            entries = slice(entry.start, entry.stop)
            scale[entries] = theta[entries].abs() + ETA
    return scale


Scale = Callable[[Objective, Tensor], Tensor]
Search = Callable[[Neighbourhood], Rise]
KINDS: dict[str, tuple[Scale, Search]] = {
    "sam": (_scale_none, take_one_step),
    "sam_max": (_scale_none, maximise),
    "asam": (_scale_as_published, take_one_step),
    "asam_all": (_scale_by_magnitude, take_one_step),
    "asam_max": (_scale_by_magnitude, maximise),
    "average": (_scale_none, average_random),
    "average_adaptive": (_scale_by_magnitude, average_random),
    "keskar": (_scale_by_magnitude_plus_one, maximise_percentage),
}
NORMED = ("asam", "asam_all", "asam_max")  # kinds with a choice of p
MAXIMISED = ("sam_max", "asam_max", "keskar")


def _average_batches(found: list[Sharpness], sizes: list[int], m: int) -> Sharpness:
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
