"""The trace of an operator from products with random signs, with its standard error, in all and per layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from landscape.errors import choose, finite, positive, whole
from landscape.operators import Operator, ScaledOperator
from landscape.results import Array, Progress, Trace, standard_error
from landscape.rng import rademacher

# Vectors per product: one graph serves them all. It is also the least number of samples whose standard error is
# believed: two lucky ones must not stop an estimate.
BLOCK = 8

Multiply = Callable[[Tensor], Tensor]


def trace(
    operator: Operator,
    *,
    probes: int = 100,
    method: str = "hutchinson",
    target: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Trace:
    """Estimate the trace of a symmetric operator from at most `probes` products.

    hutchinson  mean of v'Hv over random signs v; variance 2 (||H||_F^2 - sum_i H_ii^2) / probes
                (Hutchinson 1990). Exact for a diagonal matrix.
    hutch++     a third of the products finds the dominant range Q, a third gives its share exactly, and only
                (I - QQ')H(I - QQ') is sampled (Meyer et al. 2021). Better when the spectrum decays fast; keeps
                about probes vectors in memory.

    target stops as soon as a block brings the standard error to that value or below. Block traces of layers come
    from the same products, v_l . (Hv)_l, and add up to the value.
    """
    basis_of = METHODS[choose("method", method, METHODS)]
    whole("probes", probes)
    if target is not None:
        positive("target", target)
    places = _places(operator)
    scaled = ScaledOperator(operator)
    spent = 0

    def multiply(rows: Tensor) -> Tensor:
        nonlocal spent
        images = torch.empty_like(rows)
        for start in range(0, len(rows), BLOCK):
            images[start : start + BLOCK] = finite("an operator product", scaled.matmat(rows[start : start + BLOCK]))
            spent += len(rows[start : start + BLOCK])
            if progress is not None:
                progress(spent, probes)
        return images

    basis = basis_of(operator, multiply, probes, seed)
    images = multiply(basis)
    # H = HQQ' + QQ'H - QQ'HQQ' + (I - QQ')H(I - QQ'): the first three have known block traces, the last is sampled
    known = _inner(2 * images - (images @ basis.T) @ basis, basis, places).sum(axis=0)

    samples = np.empty((0, len(places)))
    budget = probes - spent
    while len(samples) < budget:
        last = min(len(samples) + BLOCK, budget)
        v = signs(operator, range(len(samples), last), seed)
        rest = _without(multiply(_without(v, basis)), basis)
        samples = np.concatenate([samples, _inner(v, rest, places)])
        if target is not None and scaled.restore(standard_error(samples.sum(axis=1))) <= target:
            break

    values = scaled.restore(known + samples.mean(axis=0))
    errors = scaled.restore(np.array([standard_error(column) for column in samples.T]))
    layers = {layer: (float(values[i]), float(errors[i])) for i, layer in enumerate(places)}
    return Trace(
        value=float(values.sum()),
        standard_error=float(scaled.restore(standard_error(samples.sum(axis=1)))),
        layers=layers if operator.layout is not None else {},
        products=scaled.products,
    )


def signs(operator: Operator, indices: Iterable[int], seed: int, purpose: str = "probe") -> Tensor:
    """Random signs, one row per index; zero on running statistics, which are carried along but have no curvature."""
    rows = torch.stack([rademacher((operator.size,), seed, purpose, index) for index in indices])
    rows[:, operator.dimension :] = 0
    return rows.to(operator.device, operator.dtype)


def _no_basis(operator: Operator, multiply: Multiply, probes: int, seed: int) -> Tensor:
    return torch.empty(0, operator.size, dtype=operator.dtype, device=operator.device)


def _range_basis(operator: Operator, multiply: Multiply, probes: int, seed: int) -> Tensor:
    """Orthonormal rows that span H S for random signs S."""
    if probes < 3:
        raise ValueError(f"hutch++ needs probes of at least 3, one for each of its parts; got {probes}")
    rank = min(probes // 3, operator.dimension)
    sketch = multiply(signs(operator, range(rank), seed, "sketch"))
    basis: Tensor = torch.linalg.qr(sketch.T)[0]
    return basis.T.contiguous()


METHODS: dict[str, Callable[[Operator, Multiply, int, int], Tensor]] = {  # what to take out before sampling
    "hutchinson": _no_basis,
    "hutch++": _range_basis,
}


def _without(rows: Tensor, basis: Tensor) -> Tensor:
    return rows - (rows @ basis.T) @ basis if len(basis) else rows


def _places(operator: Operator) -> dict[str, list[slice]]:
    """Where each layer's parameters live; one nameless layer for a plain matrix."""
    if operator.layout is None:
        return {"": [slice(0, operator.size)]}
    return {
        layer: [slice(entry.start, entry.stop) for entry in entries]
        for layer, entries in operator.layout.layers.items()
    }


def _inner(left: Tensor, right: Tensor, places: dict[str, list[slice]]) -> Array:
    """Row-wise inner products, layer by layer, summed in float64: (count, layers)."""

    def inner(place: slice) -> Tensor:
        return (left[:, place] * right[:, place]).sum(dim=1, dtype=torch.float64)

    sums = [torch.stack([inner(place) for place in layer]).sum(dim=0) for layer in places.values()]
    return np.asarray(torch.stack(sums, dim=1).cpu())
