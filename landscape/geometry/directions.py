"""Directions in parameter space: random, along eigenvectors, between models, through models, along a run.

All inner products are taken in float64, block by block, so that float32 models lose no accuracy and a long stack of
checkpoints is never copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from landscape.errors import finite, whole
from landscape.layout import Layout
from landscape.results import Array, Eigenpairs, Frame, Trajectory
from landscape.rng import normal
from landscape.runtime.device import choose_sum_device, to_float64

BLOCK = 2**16  # columns in float64 at a time: 50 MB for a hundred checkpoints
COLLINEAR = 1e-6  # the sine below which two directions count as one


def filter_normalized(layout: Layout, theta: Tensor, seed: int = 0, count: int = 2) -> tuple[Tensor, ...]:
    """Draw random directions whose filters have the norms of theta's filters (Li et al. 2018).

    layout: of theta; it knows the filters.
    theta: the model.
    seed: the Gaussians are keyed by seed and tensor name, so the same seed compares models in the same directions, each
        with its own norms.
    count: how many directions.

    d_ij <- d_ij / ||d_ij|| * ||theta_ij|| for filter j of layer i, and zero on biases, affine parameters of norm layers
    and running statistics.
    """
    whole("count", count)
    own = to_float64(finite("theta", _check_vector(layout.check(theta), "theta")))
    target = layout.filter_norms(own)
    directions = []
    for index in range(count):
        gaussian = torch.zeros(layout.size, dtype=torch.float64)
        for entry in layout.entries:
            if entry.kind == "weight":
                gaussian[entry.start : entry.stop] = normal(
                    (entry.stop - entry.start,), seed, "filter direction", index, entry.name
                )
        gaussian = gaussian.to(own.device)
        norms = layout.filter_norms(gaussian)
        scale = torch.where(norms > 0, target / torch.where(norms > 0, norms, 1.0), 0.0)
        directions.append((gaussian * scale).to(theta))
    return tuple(directions)


def eigenvectors(pairs: Eigenpairs, first: int = 0, second: int = 1) -> tuple[Tensor, Tensor]:
    """Two of the eigenvectors, of unit length; rescaling filters would turn the axes away from them.

    pairs: what `eigenpairs` found.
    first: number of the pair for the first axis, from 0.
    second: number of the pair for the second axis.

    Along an eigenvector v, L(theta + a v) has second derivative lambda, so `curvature_extent` gives a range.
    """
    most = len(pairs.values) - 1
    first, second = whole("first", first, 0, most), whole("second", second, 0, most)
    if first == second:
        raise ValueError(f"a plane needs two different eigenvectors, got number {first} twice")
    return pairs.vectors[first], pairs.vectors[second]


def between(start: Tensor, end: Tensor) -> Tensor:
    """The direction that leads from `start` (coordinate 0) to `end` (coordinate 1)."""
    _check_sizes(start=start, end=end)
    return end.detach() - start.detach()


def through_models(a: Tensor, b: Tensor, c: Tensor, weights: int | None = None) -> Frame:
    """An orthonormal frame of the plane through three models (Garipov et al. 2018).

    a: the model at (0, 0).
    b: the model on the x axis.
    c: the third model, above the x axis.
    weights: how many of the first entries span the plane; the others, such as running statistics of norm layers, move
        linearly and are each model's own at its place. None: all.

    u = (b - a) / ||b - a||, and v = (c - a) - <c - a, u> u, normalised. To evaluate the plane write
    plane(objective, frame.base, frame.u, frame.v, extent=extent(frame.coordinates)).

    >>> a, b, c = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([2.0, 0.0, 1.0]), torch.tensor([1.0, 3.0, 1.0])
    >>> through_models(a, b, c).coordinates.tolist()
    [[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]
    """
    _check_sizes(a=a, b=b, c=c)
    if weights is not None and weights < len(a):
        frame = through_models(a[:weights], b[:weights], c[:weights])
        width, (along, height) = frame.coordinates[1, 0], frame.coordinates[2]
        across = (b - a)[weights:] / width
        upwards = ((c - a)[weights:] - along * across) / height
        return Frame(a.detach().clone(), torch.cat([frame.u, across]), torch.cat([frame.v, upwards]), frame.coordinates)
    models = [to_float64(finite(name, model.detach())) for name, model in zip("abc", (a, b, c), strict=True)]
    noise = _estimate_rounding(a, max(float(model.norm()) for model in models))
    to_b, to_c = models[1] - models[0], models[2] - models[0]
    width, reach = float(to_b.norm()), float(to_c.norm())
    for name, distance in (("b", width), ("c", reach)):
        if distance <= noise:
            raise ValueError(f"models a and {name} are equal to rounding: a plane needs three different models")
    u = to_b / width
    along = float(to_c @ u)
    v = to_c - along * u
    height = float(v.norm())
    if height <= max(COLLINEAR * reach, noise):
        raise ValueError(
            f"the three models lie on one line (distance {height:.3g} from it): they span no plane. "
            "Use paths.interpolate between the outer two, or choose another third model"
        )
    v = v / height
    v = v - (v @ u) * u  # once more: the first pass leaves rounding when c is nearly on the line
    v = v / v.norm()
    coordinates = np.array([[0.0, 0.0], [width, 0.0], [along, height]])
    return Frame(a.detach().clone(), u.to(a), v.to(a), coordinates)


def trajectory(thetas: Tensor) -> Trajectory:
    """The two principal directions of a run's checkpoints, through the last one.

    thetas: (T, size) the checkpoints in order, at least three.

    PCA of theta_i - theta_T without centring (Li et al. 2018), by the T x T Gram matrix. The projections are not the
    checkpoints: `distance` of the result says how far each lies from the plane, `explained` how much the plane holds.
    """
    if thetas.ndim != 2 or len(thetas) < 3:
        raise ValueError(f"thetas must be a stack (T, size) of at least 3 checkpoints, got {tuple(thetas.shape)}")
    thetas = finite("thetas", thetas.detach())
    last = thetas[-1]
    gram = torch.zeros(len(thetas), len(thetas), dtype=torch.float64, device=choose_sum_device(thetas.device))
    for rows, base in _iterate_blocks(thetas, last):
        gram += (rows - base) @ (rows - base).T
    values, vectors = torch.linalg.eigh(gram)  # ascending
    first, second = (max(float(values[k]), 0.0) ** 0.5 for k in (-1, -2))
    noise = _estimate_rounding(thetas, float(to_float64(last).norm()))
    if first <= noise:
        raise ValueError("all checkpoints are equal to rounding: there is no trajectory to draw")
    if second <= max(COLLINEAR * first, noise):
        raise ValueError("the checkpoints lie on one line: use directions.between its ends and surface.line")
    u, v = torch.cat([vectors[:, [-1, -2]].T @ (rows - base) for rows, base in _iterate_blocks(thetas, last)], dim=1)
    u = _fix_sign(u / u.norm())
    v = v - (v @ u) * u  # the Gram matrix squares the condition number, so v may lean towards u
    v = _fix_sign(v / v.norm())
    u, v = u.to(thetas), v.to(thetas)
    coordinates, distance = project(thetas, last, u, v)
    explained = (values[[-1, -2]] / gram.trace()).cpu().numpy()
    return Trajectory(last.clone(), u, v, coordinates, explained, distance)


def project(theta: Tensor, base: Tensor, d1: Tensor, d2: Tensor) -> tuple[Array, Array]:
    """Project on the plane base + x d1 + y d2 by least squares; return coordinates and distances from the plane.

    theta: one vector (size,), which gives coordinates (2,) and one distance, or a stack (..., size), which gives
        (..., 2) and (...).
    base: the origin of the plane.
    d1: direction of the first axis.
    d2: direction of the second axis; the two need be neither of unit length nor orthogonal.
    """
    for name, vector in (("d1", d1), ("d2", d2), ("base", base)):
        if _check_vector(vector, name).shape[0] != theta.shape[-1]:
            raise ValueError(f"{name} must have {theta.shape[-1]} entries like theta, got {vector.shape[0]}")
    both = torch.stack([d1, d2])
    if 1 - abs(cosine(d1, d2)) < COLLINEAR**2:
        raise ValueError("d1 and d2 are collinear: coordinates in their plane are not determined")
    stack = theta.reshape(-1, theta.shape[-1])
    gram = torch.zeros(2, 2, dtype=torch.float64, device=choose_sum_device(theta.device))
    moment = torch.zeros(len(stack), 2, dtype=torch.float64, device=choose_sum_device(theta.device))
    for rows, origin, pair in _iterate_blocks(stack, base, both):
        gram += pair @ pair.T
        moment += (rows - origin) @ pair.T
    coordinates = torch.linalg.solve(gram, moment.T).T
    squares = torch.zeros(len(stack), dtype=torch.float64, device=choose_sum_device(theta.device))
    for rows, origin, pair in _iterate_blocks(stack, base, both):
        squares += (rows - origin - coordinates @ pair).square().sum(dim=1)
    shape = tuple(theta.shape[:-1])
    return coordinates.reshape(*shape, 2).cpu().numpy(), squares.sqrt().reshape(shape).cpu().numpy()


def cosine(d1: Tensor, d2: Tensor) -> float:
    """Return the cosine of the angle between two directions, <d1, d2> / (||d1|| ||d2||), in float64.

    d1, d2: the directions, flat vectors of one length.
    """
    _check_sizes(d1=d1, d2=d2)
    gram = torch.zeros(2, 2, dtype=torch.float64, device=choose_sum_device(d1.device))
    for (pair,) in _iterate_blocks(torch.stack([d1, d2])):
        gram += pair @ pair.T
    lengths = gram.diagonal().sqrt()
    if not bool((lengths > 0).all()):
        raise ValueError("the cosine with a zero direction is not defined: are the two models equal?")
    return float((gram[0, 1] / lengths[0] / lengths[1]).clamp(-1.0, 1.0))


def cosine_or_nan(a: Tensor, b: Tensor) -> float:
    """Return the cosine of two vectors; NaN where one is zero or not known.

    a, b: flat vectors of one length.
    """
    defined = all(bool(one.any()) and not bool(one.isnan().any()) for one in (a, b))
    return cosine(a, b) if defined else math.nan


def norm(a: Tensor) -> float:
    """Return ||a||, computed in float64.

    a: any tensor.
    """
    return float(to_float64(a).norm())


def distance(a: Tensor, b: Tensor) -> float:
    """Return ||a - b||, computed in float64.

    a, b: tensors of one shape.
    """
    return norm(to_float64(a) - to_float64(b))


def extent(coordinates: Array, margin: float = 0.2) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ranges ((x low, x high), (y low, y high)) that show all points.

    coordinates: (n, 2) of the points.
    margin: added on every side, as a share of the points' range.

    >>> import numpy as np
    >>> extent(np.array([[0.0, 0.0], [1.0, 2.0]]), margin=0.5)
    ((-0.5, 1.5), (-1.0, 3.0))
    """
    points = np.asarray(coordinates, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise ValueError(f"coordinates must be finite and of shape (n, 2), got shape {points.shape}")
    if margin < 0 or np.ptp(points, axis=0).min() <= 0:
        raise ValueError("extent needs a margin of at least 0 and points that differ along both axes")
    low, high = points.min(axis=0), points.max(axis=0)
    rim = margin * (high - low)
    (x_low, y_low), (x_high, y_high) = (low - rim).tolist(), (high + rim).tolist()
    return (x_low, x_high), (y_low, y_high)


def _iterate_blocks(*stacks: Tensor) -> Iterator[list[Tensor]]:
    """The same columns of every stack in float64, a block at a time."""
    for start in range(0, stacks[0].shape[-1], BLOCK):
        yield [to_float64(stack[..., start : start + BLOCK].detach()) for stack in stacks]


def _estimate_rounding(like: Tensor, norm: float) -> float:
    """Distances up to this are storage rounding: each entry is off by up to half an epsilon of itself."""
    return torch.finfo(like.dtype).eps * norm


def _fix_sign(vector: Tensor) -> Tensor:
    """Of v and -v the one whose largest entry is positive, so that pictures do not flip between machines."""
    return vector if vector[vector.abs().argmax()] > 0 else -vector


def _check_vector(vector: Tensor, name: str) -> Tensor:
    if vector.ndim != 1:
        raise ValueError(f"{name} must be one flat vector, got shape {tuple(vector.shape)}")
    return vector.detach()


def _check_sizes(**vectors: Tensor) -> None:
    sizes = {name: len(_check_vector(vector, name)) for name, vector in vectors.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"vectors must have one size, got {sizes}: are these models of one architecture?")
