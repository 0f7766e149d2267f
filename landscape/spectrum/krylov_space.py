"""The space of block Lanczos: an orthonormal basis, the operator projected on it, and what the projection leaves out.

The basis Q is kept in the operator's precision, the projection T = Q A Q' in float64. T is stored densely, so that
restarts, warm starts and deflated blocks are all the same Rayleigh-Ritz step:
A Q' = Q' T + (next block)' B' + (directions that were dropped), and the residual of a Ritz pair (t, y) is the
norm of what y sends into the last two terms. No ghost copies appear, because Q stays orthonormal.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from landscape.errors import finite
from landscape.operators import Operator, ScaledOperator
from landscape.results import Array
from landscape.rng import normal
from landscape.runtime.device import compute_norm, to_float64

MOST_BYTES = 2**31  # of a basis by default; no share of free memory, since the last bits depend on where it restarts
SHRUNK = 0.7  # a vector that loses more than this of its length when made orthogonal must be made so once more


class KrylovSpace:
    """An orthonormal basis Q, the projection T of the operator on it, and what the projection leaves out.

    operator: that is projected.
    capacity: the most rows of Q.
    first: orthonormal rows to begin with.
    """

    def __init__(self, operator: ScaledOperator, capacity: int, first: Tensor):
        self.operator, self.capacity = operator, capacity
        self.Q = torch.empty(capacity, operator.size, dtype=operator.dtype, device=operator.device)
        self.T = np.zeros((capacity, capacity))
        self.known = 0  # rows of Q whose products are in T
        self.width = len(first)  # rows after them that come next
        self._write_next(first)
        self.expected: Array | None = None  # coupling of the next rows to the known ones, if symmetry tells it
        self.leaks: list[Array] = []  # (known then, directions): parts of A Q' that were dropped from the basis
        self.outside = first  # orthonormal rows that span what the newest products have outside the basis,
        self.factor = np.zeros((0, 0))  # and its coefficients: outside part = factor @ outside
        self.reductions = 0  # how often the basis was reduced to Ritz vectors: each time they are rounded anew
        self.kept = np.zeros(0, dtype=bool)  # which of them come next
        self.origin: int | None = 0 if self.width == 1 else None  # row where the present sequence began, and
        self.lengths: list[float] = []  # those of its remainders, if it is one vector's unbroken Krylov sequence

    @property
    def full(self) -> bool:
        """Whether the basis spans everything."""
        return self.known == self.operator.dimension

    @property
    def crowded(self) -> bool:
        """Whether there is no room in the basis for the next rows."""
        return self.known + self.width > self.capacity

    def rounding(self, largest: float) -> float:
        """The size of residuals that are only rounding, if the largest eigenvalue has this magnitude."""
        return self.operator.rounding(largest) * (1 + 0.5 * self.reductions)

    def multiply(self) -> None:
        """Multiply the next rows and fold the products into T."""
        old, new = self.known, self.known + self.width
        W = finite("an operator product", self.operator.matmat(self.Q[old:new]))
        C = np.zeros((new, self.width))
        # first along the rows where something is expected, for a plain step the last two; then along all of them,
        # until little is left to remove: "twice is enough" (Parlett 1998, 6.9), at the price of once
        first, before = self._find_first_coupled(), norm(W)
        while True:
            Q = self.Q[first:new]
            part = Q @ W.T
            W = W - part.T @ Q
            C[first:] += to_float64(part).cpu().numpy()
            left = norm(W)
            if first == 0 and (left > SHRUNK * before or left <= torch.finfo(W.dtype).eps * before):
                break
            first, before = 0, left
        self._check_symmetry(C)
        self.T[:old, old:new] = C[:old]
        self.T[old:new, :old] = C[:old].T
        self.T[old:new, old:new] = (C[old:] + C[old:].T) / 2
        self.known = new
        self._split(W, left)

    def _split(self, W: Tensor, length: float) -> None:
        """Write what the newest products have outside the basis, of this norm, as factor @ (orthonormal rows)."""
        if len(W) == 1:  # without the decompositions
            self.factor, self.outside = np.array([[length]]), W / max(length, torch.finfo(W.dtype).tiny)
            self.lengths.append(length)
            return
        basis, R = torch.linalg.qr(W.T)
        U, sizes, Vh = np.linalg.svd(to_float64(R).cpu().numpy())  # W' = basis U sizes Vh
        self.factor = Vh.T * sizes
        self.outside = torch.from_numpy(U.T.copy()).to(W) @ basis.T
        self.origin = None

    def _find_first_coupled(self) -> int:
        """The first row that the coming products are expected to have a part along."""
        if self.expected is None:
            return 0
        rows = np.flatnonzero(np.abs(self.expected).max(axis=1, initial=0.0))
        return int(rows[0]) if len(rows) else self.known

    def _check_symmetry(self, C: Array) -> None:
        """Free of charge: the part of A q along earlier vectors is already known if A equals its transpose."""
        old, new = self.known, self.known + self.width
        scale = max(float(np.abs(C).max()), float(np.abs(self.T[:old, :old]).max(initial=0.0)))
        gap = float(np.abs(C[old:] - C[old:].T).max())
        if self.expected is not None:
            slack = sum(float(np.linalg.norm(leak)) for leak in self.leaks)
            gap = max(gap, float(np.abs(C[:old] - self.expected).max(initial=0.0)) - slack)
        if gap > 1e-3 * scale:
            raise ValueError(
                f"the operator is not symmetric: u.Av and v.Au differ by {gap / scale:.2g} of its size after "
                f"{new} products. Is the loss deterministic, and the product linear?"
            )

    def residuals(self, Y: Array) -> Array:
        """||A v - t v|| for Ritz vectors v = Q' y, one per column of Y."""
        total: Array = np.linalg.norm(self.factor.T @ Y[self.known - len(self.factor) : self.known], axis=0)
        for leak in self.leaks:
            total = total + np.linalg.norm(leak.T @ Y[: len(leak)], axis=0)
        return total

    def advance(self, drop: float, floor: float) -> bool:
        """Make an orthonormal block of the newest remainder the next rows; False if nothing is left of it.

        Directions of a block that are smaller than `drop` cannot matter for the wanted pairs any more: they
        are left out and remembered as leaks. A single vector continues until it vanishes in rounding.
        """
        sizes = np.linalg.norm(self.factor, axis=0)
        self.kept = sizes > (max(drop, 100 * floor) if len(sizes) > 1 else floor)
        self._leave_out(~self.kept)
        self.width = min(int(self.kept.sum()), self.operator.dimension - self.known)
        if self.width == 0:
            return False
        if len(sizes) == 1:
            rows = self.outside  # a unit vector, orthogonal to the basis
        else:
            chosen = np.flatnonzero(self.kept)[: self.width]
            rows = orthonormalise(self.outside[torch.from_numpy(chosen).to(self.outside.device)], self.Q[: self.known])
        overlap = to_float64(self.outside @ rows.T).cpu().numpy()
        self.expected = np.zeros((self.known, self.width))
        self.expected[self.known - len(sizes) :] = self.factor @ overlap
        self._write_next(rows)
        return True

    def has_vanished(self, floor: float) -> bool:
        """Whether the sequence closed: its remainder is rounding, so it holds no copy of any eigenvalue twice."""
        return bool(np.linalg.norm(self.factor) <= 100 * floor)

    def renew(self, row: Tensor) -> None:
        """Continue with a new sequence from this vector; what `advance` had chosen becomes a leak."""
        if self.width:
            self._leave_out(self.kept)
        self.width, self.expected = 1, None
        self.factor = np.zeros((0, 0))
        self.origin, self.lengths = self.known, []
        self._write_next(orthonormalise(row.to(self.Q), self.Q[: self.known]))

    def chance_of_more(self, low: float, high: float) -> float | None:
        """How likely, at most, an eigenvalue outside [low, high] is that the present sequence should have shown.

        Let p be the sequence's polynomial, whose zeros are its m Ritz values. For a start z of unit length, p(A) z
        has the length of the product of the remainders' lengths b, so an eigenvector v of an eigenvalue t beyond
        `high` has |v.z| <= prod(b) / p(t) <= prod(b) / p(high). For a random z in n dimensions that is as unlikely as
        sqrt(2n / pi) times this bound; a start that is random for half of its length or more doubles it.

        None if the present sequence cannot tell: it was restarted or has several vectors, or it is the one that
        found values out there.
        """
        if self.origin is None:
            return None
        values = np.linalg.eigvalsh(self.T[self.origin : self.known, self.origin : self.known])
        if values[-1] >= high or values[0] <= low:
            return None
        if self.lengths[-1] == 0.0:
            return 0.0
        lengths = 0.5 * np.log(8 * (self.operator.dimension - self.origin) / np.pi) + np.log(self.lengths).sum()
        bounds = [lengths - np.log(room).sum() for room in (high - values, values - low)]
        return float(min(np.exp(np.minimum(bounds, 0.0)).sum(), 1.0))

    def _leave_out(self, which: NDArray[np.bool_]) -> None:
        if self.factor[:, which].any():
            leak = np.zeros((self.known, int(which.sum())))
            leak[self.known - len(self.factor) :] = self.factor[:, which]
            self.leaks.append(leak)

    def _write_next(self, rows: Tensor) -> None:
        self.next = rows
        if self.width and not self.crowded:
            self.Q[self.known : self.known + self.width] = rows

    def reduce(self, values: Array, Y: Array) -> None:
        """Keep only these Ritz vectors of the basis, one per column of Y."""
        count = len(values)
        self.Q[:count] = torch.from_numpy(np.ascontiguousarray(Y.T)).to(self.Q) @ self.Q[: self.known]
        self.leaks = [Y[: len(leak)].T @ leak for leak in self.leaks]
        if self.expected is not None:
            self.expected = Y.T @ self.expected
        self.T[:] = 0.0
        self.T[np.arange(count), np.arange(count)] = values
        self.known, self.origin = count, None
        self.reductions += 1
        self._write_next(self.next)

    def restart_from(self, values: Array, Y: Array, row: Tensor) -> None:
        """Keep only these Ritz vectors, and continue with a new sequence from `row`, orthogonal to them."""
        if self.width:
            self._leave_out(self.kept)
        self.width = 0
        self.reduce(values, Y)
        self.renew(row)

    def ritz_vectors(self, Y: Array) -> Tensor:
        """The Ritz vectors Q' y of unit length, with signs such that the entry of largest magnitude is positive."""
        rows = torch.from_numpy(np.ascontiguousarray(Y.T)).to(self.Q) @ self.Q[: self.known]
        return orient(rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True))


def orient(rows: Tensor) -> Tensor:
    """Rows with signs such that the entry of largest magnitude is positive."""
    largest = rows.abs().argmax(dim=1, keepdim=True)
    signed: Tensor = torch.sign(rows.gather(1, largest)) * rows
    return signed


def norm(rows: Tensor) -> float:
    """Frobenius norm, summed in float64."""
    return float(compute_norm(rows))


def orthonormalise(rows: Tensor, against: Tensor | None = None) -> Tensor:
    """Make rows orthonormal, and orthogonal to the rows of `against`; dependent rows are refused."""
    for _ in range(2):
        if against is not None and len(against):
            rows = rows - (rows @ against.T) @ against
        if len(rows) == 1:
            rows = rows / torch.linalg.vector_norm(rows)
        else:
            basis, R = torch.linalg.qr(rows.T)
            sizes = R.diagonal().abs()
            if float(sizes.min()) <= 1e-6 * float(sizes.max()):
                raise ValueError("vectors must be linearly independent and not zero")
            rows = basis.T
    return finite("a basis vector", rows)


def random_rows(operator: Operator, count: int, seed: int, *key: str | int) -> Tensor:
    """Gaussian rows (count, size) for a key, zero on running statistics."""
    rows = torch.zeros(count, operator.size, dtype=torch.float64)
    rows[:, : operator.dimension] = normal((count, operator.dimension), seed, *key)
    return rows.to(operator.device, operator.dtype)
