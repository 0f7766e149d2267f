"""Loss and error along a line and over a plane in parameter space.

Every point is computed from the base, never by adding up steps, so a symmetric grid with an odd number of points holds
the base itself, and its centre equals objective.loss(theta) to the bit. Where `done` of a result is False, NaN means
not computed; where it is True, losses are the results, also infinite ones and NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from landscape.errors import finite, positive, whole
from landscape.geometry.cells import Cells, check_same_grid
from landscape.geometry.directions import cosine
from landscape.objectives.objective import Objective
from landscape.progress import with_bar
from landscape.results import Array, Evaluation, Line, Plane, Progress

SHARPEST = 10  # times the wanted rise: what the sharpest model may show when the flattest sets the range
Interval = tuple[float, float]
Extent = float | Interval | tuple[Interval, Interval]
Writer = Callable[[Tensor], object]
Point = Tensor | nn.Module  # a flat vector, or a model of the objective's architecture


@with_bar("line")
def line(
    objective: Objective,
    theta: Point,
    direction: Tensor,
    *,
    steps: int = 51,
    extent: float | Interval = 1.0,
    resume: Line | None = None,
    progress: Progress | None = None,
) -> Line:
    """Evaluate loss and error at theta + x * direction.

    objective: the loss.
    theta: the base, a flat vector or a model.
    direction: a flat vector.
    steps: number of points.
    extent: the range of x: a number e for [-e, e], or (low, high).
    resume: an earlier, partly computed line of the same grid; only what it lacks is computed.
    progress: called with (points done, points in all); by default a bar, see `landscape.show_progress`.

    >>> objective = Objective(nn.Linear(1, 1, bias=False), (torch.ones(1, 1), torch.zeros(1, 1)),
    ...                       loss=nn.functional.mse_loss)
    >>> found = line(objective, torch.tensor([0.0]), torch.tensor([1.0]), steps=5, extent=2.0)
    >>> found.x.tolist(), found.loss.tolist()
    ([-2.0, -1.0, 0.0, 1.0, 2.0], [4.0, 1.0, 0.0, 1.0, 4.0])
    """
    base, towards = vector(objective, theta, "theta"), _check_direction(objective, direction, "direction")
    (interval,) = _read_extent(extent, 1)
    x = coordinates(*interval, whole("steps", steps))
    return sample(objective, x, partial(_shift, base, towards), resume=resume, progress=progress)


@with_bar("plane")
def plane(
    objective: Objective,
    theta: Point,
    d1: Tensor,
    d2: Tensor,
    *,
    steps: int | tuple[int, int] = 51,
    extent: Extent = 1.0,
    resume: Plane | None = None,
    on_row: Callable[[Plane], object] | None = None,
    progress: Progress | None = None,
) -> Plane:
    """Evaluate loss and error at theta + x_i * d1 + y_j * d2, indexed [i, j].

    objective: the loss.
    theta: the base, a flat vector or a model.
    d1: direction of the first axis.
    d2: direction of the second axis; orthogonality is not needed, `cosine` of the result gives the angle.
    steps: number of points, one for both axes or (nx, ny).
    extent: the ranges: e for [-e, e], (low, high) for both axes, or ((x low, x high), (y low, y high)).
    resume: an earlier, partly computed plane of the same grid; only its unfinished rows are computed.
    on_row: called with the plane so far after each finished row, in order, so that it can be saved.
    progress: called with (points done, points in all); by default a bar, see `landscape.show_progress`.
    """
    base = vector(objective, theta, "theta")
    first, second = _check_direction(objective, d1, "d1"), _check_direction(objective, d2, "d2")
    angle = cosine(first, second)
    if abs(angle) > 1 - 1e-6:
        raise ValueError(f"d1 and d2 are collinear (cosine {angle:.7f}): they span no plane. Use line(), or another d2")
    (nx, ny), (across, along) = _read_steps(steps), _read_extent(extent, 2)
    x, y = coordinates(*across, nx), coordinates(*along, ny)
    if resume is not None:
        check_same_grid("x", resume.x, x, scale=float(np.abs(x).max()))
        check_same_grid("y", resume.y, y, scale=float(np.abs(y).max()))
        check_same_grid("cosine of the directions", np.array([resume.cosine]), np.array([angle]), scale=1.0)
    cells = Cells((nx, ny), resume)
    rows = [int(i) for i in np.flatnonzero(~cells.done.all(axis=1))]

    def writers() -> Iterator[Writer]:
        for i in rows:
            row = torch.add(base, first, alpha=float(x[i]))
            yield from (partial(_shift, row, second, float(b)) for b in y)

    def so_far() -> Plane:
        return Plane(x=x, y=y, cosine=angle, **cells.copy())

    finished = (len(x) - len(rows)) * len(y)
    with _evaluate_all(objective, writers()) as evaluations:
        for i in rows:
            for j in range(len(y)):
                cells.store((i, j), next(evaluations))
                finished += 1
                if progress is not None:
                    progress(finished, cells.done.size)
            if on_row is not None:
                on_row(so_far())
    return so_far()


def sample(
    objective: Objective,
    x: Array,
    write: Callable[[float, Tensor], object],
    *,
    resume: Line | None = None,
    progress: Progress | None = None,
) -> Line:
    """Evaluate loss and error over any family of models with one parameter.

    objective: the loss.
    x: values of the parameter.
    write: called with (x, flat); writes the model at x into the tensor flat.
    resume: an earlier, partly computed line of the same x; only what it lacks is computed.
    progress: called with (points done, points in all).
    """
    if resume is not None:
        check_same_grid("x", resume.x, x, scale=float(np.abs(x).max()))
    cells = Cells(x.shape, resume)
    missing = [int(i) for i in np.flatnonzero(~cells.done)]
    with _evaluate_all(objective, (partial(write, float(x[i])) for i in missing)) as evaluations:
        for number, i in enumerate(missing, start=1 + len(x) - len(missing)):
            cells.store(i, next(evaluations))
            if progress is not None:
                progress(number, len(x))
    return Line(x=x, **cells.copy())


def sample_rows(objective: Objective, theta: Point, d1: Tensor, d2: Tensor, x: Array, y: Array) -> Line:
    """Evaluate loss and error at theta + x_i * d1 + y_j * d2, row by row: a part of what `plane` gives, to the bit.

    objective: the loss.
    theta: the base, a flat vector or a model.
    d1, d2: directions of the two axes.
    x: coordinates of the rows.
    y: coordinates of the points in a row.

    Returns all points as one line, whose x are their numbers.
    """
    base, first, second = (vector(objective, one, "model or direction") for one in (theta, d1, d2))

    def write(number: float, flat: Tensor) -> None:
        i, j = divmod(int(number), len(y))
        torch.add(base, first, alpha=float(x[i]), out=flat).add_(second, alpha=float(y[j]))

    return sample(objective, np.arange(len(x) * len(y), dtype=np.float64), write)


def coordinates(low: float, high: float, steps: int) -> Array:
    """Evenly spaced numbers from low to high, with exactly 0 and 1 where those fall on the grid.

    low: the first number.
    high: the last number.
    steps: how many; a single one is the middle.

    Symmetric intervals give exactly antisymmetric numbers.

    >>> coordinates(-1.0, 1.0, 5).tolist()
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    if steps == 1:
        return np.array([0.5 * (low + high)])
    last = steps - 1
    count = np.arange(steps)
    x = (low * (last - count) + high * count) / last
    x[0], x[-1] = low, high
    for mark in (0.0, 1.0):
        x[np.abs(x - mark) < 1e-9 * (high - low) / last] = mark
    return x


def curvature_extent(eigenvalue: float, rise: float) -> float:
    """How far to go along a unit eigenvector until the loss has risen by some amount: sqrt(2 rise / |lambda|).

    eigenvalue: lambda, the curvature along the eigenvector.
    rise: of the loss, to second order.

    >>> curvature_extent(8.0, 1.0)
    0.5
    """
    if eigenvalue == 0 or not np.isfinite(eigenvalue):
        raise ValueError(f"eigenvalue must be finite and not zero, got {eigenvalue}: a flat direction has no extent")
    return float(np.sqrt(2 * positive("rise", rise) / abs(eigenvalue)))


def shared_extent(curvatures: Array, rise: float, most: Array) -> Array:
    """How far to go along the axes of several models, the same for all, so that their surfaces can be compared.

    As far as the flattest model needs, but not so far that the sharpest rises more than SHARPEST times as much.

    curvatures: (models, axes) second derivatives of the loss along each axis.
    rise: of the loss that is wanted, to second order.
    most: (models,) how far to go at most, and along axes that are flat.

    >>> shared_extent(np.array([[8.0, 2.0], [2.0, 0.0]]), 1.0, np.array([3.0, 3.0])).tolist()
    [1.0, 3.0]
    """
    known = np.isfinite(curvatures) & (curvatures != 0)
    reach = np.sqrt(2 * positive("rise", rise) / np.abs(np.where(known, curvatures, 1.0)))
    reach = np.minimum(np.where(known, reach, np.inf), np.asarray(most)[:, None])
    return np.asarray(np.minimum(reach.max(axis=0), np.sqrt(SHARPEST) * reach.min(axis=0)))


def vector(objective: Objective, theta: Point, name: str) -> Tensor:
    """A point as a flat vector in the objective's precision; refused if it does not fit or is not finite.

    objective: whose layout, precision and device the vector has.
    theta: a vector, or a model, which is flattened.
    name: for messages.
    """
    if isinstance(theta, nn.Module):
        return finite(name, objective.flatten(theta))
    own = objective.layout.check(theta, name).detach().to(objective.device, objective.dtype)
    if theta.ndim != 1:
        raise ValueError(f"{name} must be one flat vector, got shape {tuple(theta.shape)}")
    return finite(name, own)


def _check_direction(objective: Objective, direction: Tensor, name: str) -> Tensor:
    own = vector(objective, direction, name)
    if not bool(own.any()):
        raise ValueError(f"{name} is zero: every point would be the same model. Are the two models equal?")
    return own


def _read_steps(steps: int | tuple[int, int]) -> tuple[int, int]:
    both = (steps, steps) if isinstance(steps, (int, float, np.number)) else tuple(steps)
    if len(both) != 2:
        raise ValueError(f"steps must be a number or (nx, ny), got {steps}")
    return whole("steps", both[0]), whole("steps", both[1])


def _read_extent(extent: Extent, count: int) -> list[Interval]:
    """One (low, high) per axis."""
    form = "a positive number or (low, high)" + (", or ((x low, x high), (y low, y high))" if count == 2 else "")
    try:
        given = np.asarray(extent, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"extent must be {form}, got {extent}") from None
    if given.ndim == 0:
        given = np.array([-given, given])
    if given.shape == (2,):
        given = np.tile(given, (count, 1))
    if given.shape != (count, 2) or not np.isfinite(given).all() or not (given[:, 0] < given[:, 1]).all():
        raise ValueError(f"extent must be {form}, with low < high and finite; got {extent}")
    return [(float(low), float(high)) for low, high in given]


def _shift(base: Tensor, direction: Tensor, amount: float, out: Tensor) -> None:
    torch.add(base, direction, alpha=amount, out=out)


def _evaluate_all(objective: Objective, points: Iterable[Writer]) -> closing[Generator[Evaluation]]:
    """The evaluations in order; closed at once on an error, so that no worker continues in the background."""
    return closing(objective.evaluate_each(points))
