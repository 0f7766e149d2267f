"""The trace of an operator from products with random signs, with its standard error, in all and per layer.

hutchinson  mean of v'Hv over random signs v; variance 2 (||H||_F^2 - sum_i H_ii^2) / probes (Hutchinson 1990). Exact
            for a diagonal matrix.
hutch++     a third of the products finds the dominant range Q, a third gives its share exactly, and only
            (I - QQ')H(I - QQ') is sampled (Meyer et al. 2021). Better when the spectrum decays fast; keeps about as
            many vectors in memory as there are probes.

Block traces of layers come from the same products, v_l . (Hv)_l, and add up to the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from landscape.errors import choose, finite, positive, whole
from landscape.operators import Operator, ScaledOperator
from landscape.progress import with_bar
from landscape.results import Array, Progress, Trace, standard_error
from landscape.rng import rademacher
from landscape.runtime.device import choose_sum_device, full_precision

# Vectors per product: one graph serves them all. It is also the least number of samples whose standard error is
# believed: two lucky ones must not stop an estimate.
BLOCK = 8

Multiply = Callable[[Tensor], Tensor]


@with_bar("trace")
@full_precision()
def trace(
    operator: Operator,
    *,
    probes: int = 100,
    method: str = "hutchinson",
    target: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Trace:
    """Estimate the trace of a symmetric operator, and those of its layers, from random products.

    operator: for example `objective.hessian(theta)`.
    probes: the most products.
    method: "hutchinson" or "hutch++" (see the module).
    target: stop as soon as the standard error is at or below this.
    seed: of the random signs.
    progress: called with (products done, the most products); by default a bar, see `landscape.show_progress`.

    >>> from landscape import MatrixOperator
    >>> trace(MatrixOperator(torch.diag(torch.tensor([1.0, 2.0, 3.0]))), probes=8).value
    6.0
    """
    find_basis = METHODS[choose("method", method, METHODS)]
    whole("probes", probes)
    if target is not None:
        positive("target", target)
    layers = _slice_layers(operator)
    scaled = ScaledOperator(operator)
    products = _Products(scaled, probes, progress)
    basis = find_basis(operator, products.multiply, probes, seed)
    images = products.multiply(basis)
    # H = HQQ' + QQ'H - QQ'HQQ' + (I - QQ')H(I - QQ'): the first three have known block traces, the last is sampled
    known = _multiply_inner(2 * images - (images @ basis.T) @ basis, basis, layers).sum(axis=0)

    samples = np.empty((0, len(layers)))
    budget = probes - products.spent
    while len(samples) < budget:
        last = min(len(samples) + BLOCK, budget)
        v = draw_signs(operator, range(len(samples), last), seed)
        rest = _remove(products.multiply(_remove(v, basis)), basis)
        samples = np.concatenate([samples, _multiply_inner(v, rest, layers)])
        if target is not None and scaled.restore(standard_error(samples.sum(axis=1))) <= target:
            break

    values = scaled.restore(known + samples.mean(axis=0))
    errors = scaled.restore(np.array([standard_error(column) for column in samples.T]))
    pairs = {layer: (float(values[i]), float(errors[i])) for i, layer in enumerate(layers)}
    return Trace(
        value=float(values.sum()),
        standard_error=float(scaled.restore(standard_error(samples.sum(axis=1)))),
        layers=pairs if operator.layout is not None else {},
        products=scaled.products,
    )


class _Products:
    """Products with an operator in blocks, counted and reported."""

    def __init__(self, operator: Operator, budget: int, progress: Progress | None):
        self.operator, self.budget, self.progress = operator, budget, progress
        self.spent = 0

    def multiply(self, rows: Tensor) -> Tensor:
        images = torch.empty_like(rows)
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            images[start : start + BLOCK] = finite("an operator product", self.operator.matmat(block))
            self.spent += len(block)
            if self.progress is not None:
                self.progress(self.spent, self.budget)
        return images


def draw_signs(operator: Operator, indices: Iterable[int], seed: int, purpose: str = "probe") -> Tensor:
    """Random signs, one row per index; zero on running statistics, which have no curvature.

    operator: whose size, precision and device the rows have.
    indices: numbers of the rows; the same number always gives the same row.
    seed: of the signs.
    purpose: part of the key, so that signs for different purposes are independent.
    """
    rows = torch.stack([rademacher((operator.size,), seed, purpose, index) for index in indices])
    rows[:, operator.dimension :] = 0
    return rows.to(operator.device, operator.dtype)


def _find_no_basis(operator: Operator, multiply: Multiply, probes: int, seed: int) -> Tensor:
    return torch.empty(0, operator.size, dtype=operator.dtype, device=operator.device)


def _find_range(operator: Operator, multiply: Multiply, probes: int, seed: int) -> Tensor:
    """Orthonormal rows that span H S for random signs S."""
    if probes < 3:
        raise ValueError(f"hutch++ needs probes of at least 3, one for each of its parts; got {probes}")
    rank = min(probes // 3, operator.dimension)
    sketch = multiply(draw_signs(operator, range(rank), seed, "sketch"))
    basis: Tensor = torch.linalg.qr(sketch.T)[0]
    return basis.T.contiguous()


METHODS: dict[str, Callable[[Operator, Multiply, int, int], Tensor]] = {  # what to take out before sampling
    "hutchinson": _find_no_basis,
    "hutch++": _find_range,
}


def _remove(rows: Tensor, basis: Tensor) -> Tensor:
    return rows - (rows @ basis.T) @ basis if len(basis) else rows


def _slice_layers(operator: Operator) -> dict[str, list[slice]]:
    """The slices of each layer's parameters; one nameless layer for a plain matrix."""
    if operator.layout is None:
        return {"": [slice(0, operator.size)]}
    return {
        layer: [slice(entry.start, entry.stop) for entry in entries]
        for layer, entries in operator.layout.layers.items()
    }


def _multiply_inner(left: Tensor, right: Tensor, layers: dict[str, list[slice]]) -> Array:
    """Row-wise inner products, layer by layer, summed in float64: (count, layers)."""

    def inner(part: slice) -> Tensor:
        products = left[:, part] * right[:, part]
        return products.to(choose_sum_device(products.device)).sum(dim=1, dtype=torch.float64)

    sums = [torch.stack([inner(part) for part in layer]).sum(dim=0) for layer in layers.values()]
    return np.asarray(torch.stack(sums, dim=1).cpu())
