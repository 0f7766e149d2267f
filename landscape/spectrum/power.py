"""Power iteration as the federated papers use it; the mistakes of the published code are optional.

The papers report lambda_1 from at most 20 steps of (stochastic, accelerated) power iteration with deflation. For
comparison with their numbers this method stays; for the eigenvalue itself use `eigenpairs`, which needs fewer products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from landscape.curvature.hessian import HessianOperator
from landscape.errors import finite, positive, whole
from landscape.objectives.objective import Objective
from landscape.operators import Operator, ScaledOperator, check_operator
from landscape.progress import with_bar
from landscape.results import Eigenpairs, Outcome, Progress
from landscape.rng import numpy_generator, torch_generator
from landscape.runtime.device import full_precision, to_float64
from landscape.spectrum.krylov_space import norm, random_rows

Sampler = Callable[[int], Operator]  # step -> the operator of a fresh mini-batch


@with_bar("power iteration")
@full_precision()
def power_iteration(
    operator: Operator,
    k: int = 1,
    *,
    max_iter: int = 20,
    tol: float = 1e-3,
    momentum: float = 0.0,
    sampler: Sampler | None = None,
    as_published: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Eigenpairs:
    """Compute the k eigenpairs of largest magnitude by deflated power iteration; returned in descending order.

    operator: for example `objective.hessian(theta)`.
    k: how many pairs.
    max_iter: the most steps for each pair.
    tol: a pair has converged if ||A v - t v|| <= tol |t|, rounding included. A larger eigenvalue may have been missed,
        so `verified` stays False. With 20 steps convergence is often not reached: see `residuals`.
    momentum: beta of w_{t+1} = A w_t - beta w_{t-1} (Xu et al. 2018); best is lambda_2^2 / 4. Both vectors are divided
        by the same norm, and the value is the Rayleigh quotient of A alone.
    sampler: gives the operator of a fresh mini-batch for every step (see `minibatches`); values and residuals are
        always taken from `operator`, the full data.
    as_published: whether to compute what pytorch-hessian-eigenthings 0.0.2 and the FedGloSS code compute; see
        `_iterate_as_published`.
    seed: of the random starts.
    progress: called with (pairs done, k); by default a bar, see `landscape.show_progress`.
    """
    check_operator(operator)
    k, max_iter = whole("k", k, most=operator.dimension), whole("max_iter", max_iter)
    positive("tol", tol)
    if momentum < 0:
        raise ValueError(f"momentum must be zero or positive, got {momentum}")
    scaled = ScaledOperator(operator)
    found: list[_Pair] = []
    spent = 0
    for index in range(k):
        step = _Steps(scaled, sampler, [pair.vector for pair in found])
        if as_published:
            pair = _iterate_as_published(step, [pair.value for pair in found], max_iter, momentum, seed)
        else:
            pair = _iterate(step, max_iter, tol, momentum, random_rows(operator, 1, seed, "power", index)[0])
        spent += step.products
        found.append(pair)
        if progress is not None:
            progress(index + 1, k)
    return _collect(found if as_published else _rotate(found), scaled, tol, spent)


def minibatches(objective: Objective, theta: Tensor, size: int, *, seed: int = 0) -> Sampler:
    """A sampler for `power_iteration`: for every step the Hessian of a fresh random mini-batch.

    objective: the loss on all data.
    theta: where the Hessian is taken.
    size: examples per mini-batch.
    seed: of the choice of examples, which is keyed by the step.
    """
    whole("size", size, most=objective.count)

    def sample(step: int) -> HessianOperator:
        chosen = numpy_generator(seed, "power batch", step).permutation(objective.count)[:size]
        return objective.take(torch.from_numpy(chosen)).hessian(theta)

    return sample


@dataclass(frozen=True)
class _Pair:
    value: float
    vector: Tensor
    product: Tensor
    steps: int

    @property
    def residual(self) -> float:
        return float((to_float64(self.product) - self.value * to_float64(self.vector)).norm())

    @property
    def size(self) -> float:
        """Length of the product: the operator has an eigenvalue of at least this magnitude."""
        return norm(self.product)


def _collect(found: list[_Pair], scaled: ScaledOperator, tol: float, spent: int) -> Eigenpairs:
    """The pairs in descending order, with residuals that include rounding."""
    found = sorted(found, key=lambda pair: -pair.value)
    values = np.array([pair.value for pair in found])
    floor = scaled.rounding(float(max(pair.size for pair in found)))
    residuals = np.array([pair.residual for pair in found]) + floor
    converged = residuals <= tol * np.abs(values)
    return Eigenpairs(
        values=scaled.restore(values),
        vectors=torch.stack([pair.vector for pair in found]),
        residuals=scaled.restore(residuals),
        converged=converged,
        products=spent,
        iterations=np.array([pair.steps for pair in found], dtype=np.int64),
        outcome=Outcome.CONVERGED if converged.all() else Outcome.MAX_ITERATIONS,
    )


class _Steps:
    """Products for one search: full data or a fresh mini-batch each, counted, with what was found before."""

    def __init__(self, operator: ScaledOperator, sampler: Sampler | None, found: list[Tensor]):
        self.operator, self.sampler, self.found = operator, sampler, found
        self.batches = 0
        self.products = 0

    def scale(self, momentum: float, power: int) -> float:
        """A momentum in units of the operator's size to this power; the size is known after the first product."""
        return float(np.ldexp(momentum, -power * (self.operator.exponent or 0)))

    def multiply(self, vector: Tensor) -> Tensor:
        if self.sampler is None:
            return self._count(self.operator, vector)
        batch = ScaledOperator(self.sampler(self.batches), self.operator.exponent)
        self.batches += 1
        product = self._count(batch, vector)
        self.operator.exponent = batch.exponent  # one scale for all, or momentum would mean another thing each time
        return product

    def make_pair(self, vector: Tensor, product: Tensor | None, value: float | None, steps: int) -> _Pair:
        """The pair with its residual on the full operator; a product is spent only if none is at hand."""
        if product is None:
            product = self._count(self.operator, vector)
        reached = float(to_float64(vector) @ to_float64(product)) if value is None else value
        return _Pair(reached, vector, product, steps)

    def _count(self, operator: ScaledOperator, vector: Tensor) -> Tensor:
        before = operator.products
        product = finite("an operator product", operator.matvec(vector))
        self.products += operator.products - before
        return product


def _iterate(step: _Steps, max_iter: int, tol: float, momentum: float, start: Tensor) -> _Pair:
    """w_{t+1} = A w_t - beta w_{t-1}, everything kept orthogonal to the vectors found before."""
    v = _normalise(_orthogonalise(start, step.found))
    previous = torch.zeros_like(v)
    for count in range(1, max_iter + 1):
        w = step.multiply(v)
        if step.sampler is None:
            pair = step.make_pair(v, w, None, count)
            if pair.residual <= tol * abs(pair.value) or count == max_iter:
                return pair
        following = _orthogonalise(w - step.scale(momentum, 2) * previous, step.found)
        length = norm(following)
        if length == 0.0:  # v lies in the null space: it is an eigenvector
            break
        previous, v = v / length, following / length
    return step.make_pair(v, None, None, count)


def _iterate_as_published(step: _Steps, values: list[float], max_iter: int, momentum: float, seed: int) -> _Pair:
    """Do what the published code does, with its mistakes:

    1. the start is uniform in [0, 1), and not normalised before the first Rayleigh quotient;
    2. each further search starts from the previous eigenvector, which deflation has sent to zero;
    3. the momentum term uses the current vector, so it only shifts the value to lambda - momentum;
    4. it stops when the Rayleigh quotient changes by less than 1e-4, which is no bound on the error;
    5. deflation subtracts value * v v' with the value and vector as found, errors included.

    The residual is that of the value and vector returned, on the true operator: where the deflated one sends the
    vector to zero, too.
    """
    vector = step.found[-1] if step.found else _draw_uniform(step.operator, seed)
    value, before = 0.0, 0.0
    for count in range(1, max_iter + 1):
        unit = vector / (norm(vector) + 1e-6)
        product = step.multiply(vector)
        for known, earlier in zip(values, step.found, strict=True):
            product = product - known * (earlier @ vector) * earlier
        product = product - step.scale(momentum, 1) * unit
        length = norm(product)
        if length == 0.0:
            return step.make_pair(_normalise(vector), None, 0.0, count)
        value = float(vector @ product)
        vector = product / length
        if value != 0.0 and abs((value - before) / value) < 1e-4:
            break
        before = value
    return step.make_pair(vector, None, value, count)


def _rotate(found: list[_Pair]) -> list[_Pair]:
    """Rayleigh-Ritz among what was found: an error in one vector otherwise spoils the residuals of the next."""
    V, W = (to_float64(torch.stack([getattr(pair, name) for pair in found])) for name in ("vector", "product"))
    T = (V @ W.T).cpu().numpy()
    values, Y = np.linalg.eigh((T + T.T) / 2)
    mix = torch.from_numpy(Y.T).to(V)
    vectors, products = ((mix @ rows).to(found[0].vector) for rows in (V, W))
    steps = [found[int(row)].steps for row in np.abs(Y).argmax(axis=0)]
    return [
        _Pair(float(value), vector, product, count)
        for value, vector, product, count in zip(values, vectors, products, steps, strict=True)
    ]


def _orthogonalise(vector: Tensor, found: list[Tensor]) -> Tensor:
    """The part of `vector` orthogonal to all of `found`, by two passes."""
    if not found:
        return vector
    basis = torch.stack(found)
    for _ in range(2):
        vector = torch.sub(vector, (basis @ vector) @ basis)
    return vector


def _normalise(vector: Tensor) -> Tensor:
    return vector / norm(vector)


def _draw_uniform(operator: Operator, seed: int) -> Tensor:
    """Numbers in [0, 1), zero on running statistics."""
    vector = torch.rand(operator.size, generator=torch_generator(seed, "power"))
    vector[operator.dimension :] = 0
    return vector.to(operator.device, operator.dtype)
