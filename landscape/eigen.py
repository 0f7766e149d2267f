"""Extreme eigenpairs by block Lanczos: full re-orthogonalisation, thick restarts, a residual test at every step.

The basis is kept in the operator's precision, the projected matrix T = Q A Q' in float64. T is stored densely,
so that restarts, warm starts and deflated blocks are all the same Rayleigh-Ritz step:
A Q' = Q' T + (next block)' B' + (directions that were dropped), and the residual of a Ritz pair (t, y) is the
norm of what y sends into the last two terms. No ghost copies appear, because Q stays orthonormal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from landscape.errors import choose, finite, positive, whole
from landscape.memory import allowance
from landscape.operators import Operator
from landscape.results import Array, Eigenpairs, Outcome, Progress
from landscape.rng import normal

WHICH: dict[str, Callable[[Array, int], NDArray[np.int64]]] = {
    # ascending Ritz values, k -> positions of the wanted ones, in descending order of value
    "largest": lambda values, k: np.arange(len(values))[::-1][:k],
    "smallest": lambda values, k: np.arange(len(values))[:k][::-1],
    "both": lambda values, k: np.r_[
        np.arange(len(values))[::-1][: (k + 1) // 2], np.arange(max(len(values) - (k + 1) // 2, 0))[: k // 2][::-1]
    ],
    "magnitude": lambda values, k: np.sort(np.argsort(-np.abs(values), kind="stable")[:k])[::-1],
}
ROUNDING = 8  # products carry a few units of rounding relative to the largest eigenvalue: no residual is below that
SHRUNK = 0.7  # a vector that loses more than this of its length when made orthogonal must be made so once more
SECOND_LOOK = 8  # steps from a fresh random vector that uncover further copies of a repeated eigenvalue


def eigenpairs(
    operator: Operator,
    k: int = 5,
    *,
    tol: float = 1e-3,
    which: str = "largest",
    start: Tensor | None = None,
    block: int = 1,
    verify: bool = False,
    max_products: int | None = None,
    max_basis: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Eigenpairs:
    """The k extreme eigenpairs of a symmetric operator, stopping once ||A v - t v|| <= tol |t| for all of them.

    which      "largest" (algebraic, the sharpness of the literature), "smallest", "both" ends, "magnitude".
    start      vectors to warm-start from, for example those of the previous round: (size,) or (count, size).
    block      vectors per step; finds up to `block` copies of an eigenvalue at once.
    verify     look again from a fresh random vector before returning: finds repeated eigenvalues that a single
               Krylov sequence cannot see. Always done when the sequence closes by itself.
    max_basis  vectors held at once (default: a quarter of free memory); beyond it the basis is restarted thickly.

    Wu & Simon 2000 (thick restart); Parlett 1998, ch. 13 (block Lanczos).
    """
    size = operator.size
    whole("k", k, most=size)
    positive("tol", tol)
    whole("block", block, most=size)
    pick = WHICH[choose("which", which, WHICH)]
    budget = whole("max_products", max_products) if max_products is not None else 100 + 20 * k
    space = _Space(operator, _capacity(operator, k, block, max_basis), _first_block(operator, start, block, seed))
    spent = looks = 0
    looking, settled = 0, np.empty(0)  # steps left of a second look, and the values found before it
    suspicious = verify  # a closed sequence, or one that missed a copy before, gets a second look
    while True:
        spent += space.width
        space.multiply()
        values, vectors = np.linalg.eigh(space.T[: space.known, : space.known])
        wanted = pick(values, k)
        floor = ROUNDING * torch.finfo(operator.dtype).eps * float(np.abs(values).max())
        estimates = space.residuals(vectors[:, wanted])
        residuals = estimates + floor  # at most: what the projection leaves out, and rounding
        near = (residuals <= tol * np.abs(values[wanted])) | (estimates <= floor)
        done = len(wanted) == k and bool(near.all())
        if progress is not None:
            progress(min(spent, budget), budget)
        if space.known == size or spent >= budget:
            break
        closed = not space.advance(max(floor, 0.1 * tol * float(np.abs(values[wanted]).min())), floor)
        if looking and done:
            looking = 0 if closed else looking - 1
            if not looking and np.allclose(values[wanted], settled, rtol=tol, atol=100 * floor):
                break
        elif looking:
            looking, suspicious = 0, True  # something new turned up: converge it, then look again
        elif done and not (suspicious or space.vanished(floor)):
            break
        if closed or (done and not looking):
            looks += 1
            looking, settled = (SECOND_LOOK, values[wanted]) if done else (0, settled)
            space.renew(normal((1, size), seed, "second look", looks))
        if space.known + space.width > space.capacity:
            space.restart(values, vectors, pick, k)
    if progress is not None:
        progress(spent, spent)
    outcome = Outcome.CONVERGED if done else Outcome.MAX_ITERATIONS
    converged = residuals <= tol * np.abs(values[wanted])
    if space.known == size:
        outcome, converged = Outcome.EXACT, np.full(len(wanted), True)
    elif done and not converged.all():
        outcome = Outcome.NOISE
    return Eigenpairs(
        values=values[wanted],
        vectors=space.ritz_vectors(vectors[:, wanted]),
        residuals=residuals,
        converged=converged,
        products=spent,
        iterations=np.full(len(wanted), spent, dtype=np.int64),
        outcome=outcome,
    )


class _Space:
    """An orthonormal basis Q, the projection T of the operator on it, and what the projection leaves out."""

    def __init__(self, operator: Operator, capacity: int, first: Tensor):
        self.operator, self.capacity = operator, capacity
        self.Q = torch.empty(capacity, operator.size, dtype=operator.dtype, device=operator.device)
        self.T = np.zeros((capacity, capacity))
        self.known = 0  # rows of Q whose products are in T
        self.width = len(first)  # rows after them that come next
        self.Q[: self.width] = first
        self.expected: Array | None = None  # coupling of the next rows to the known ones, if symmetry tells it
        self.leaks: list[Array] = []  # (known then, directions): parts of A Q' that were dropped from the basis
        self.outside = first  # orthonormal rows that span what the newest products have outside the basis,
        self.factor = np.zeros((0, 0))  # and its coefficients: outside part = factor @ outside

    def multiply(self) -> None:
        """Multiply the next rows and fold the products into T."""
        old, new = self.known, self.known + self.width
        W = finite("an operator product", self.operator.matmat(self.Q[old:new]))
        C = np.zeros((new, self.width))
        # first along the rows where something is expected, for a plain step the last two; then along all of them,
        # until little is left to remove: "twice is enough" (Parlett 1998, 6.9), at the price of once
        first = self._coupled()
        while True:
            before = float(torch.linalg.vector_norm(W))
            Q = self.Q[first:new]
            part = Q @ W.T
            W = W - part.T @ Q
            C[first:] += part.double().cpu().numpy()
            left = float(torch.linalg.vector_norm(W))
            if first == 0 and (left > SHRUNK * before or left <= self._rounding(before)):
                break
            first = 0
        self._check_symmetry(C)
        self.T[:old, old:new] = C[:old]
        self.T[old:new, :old] = C[:old].T
        self.T[old:new, old:new] = (C[old:] + C[old:].T) / 2
        self.known = new
        if self.width == 1:  # what follows, without the decompositions
            length = torch.linalg.vector_norm(W)
            self.factor, self.outside = np.array([[float(length)]]), W / length.clamp_min(torch.finfo(W.dtype).tiny)
            return
        basis, R = torch.linalg.qr(W.T)
        U, sizes, Vh = np.linalg.svd(R.double().cpu().numpy())  # W' = basis U sizes Vh
        self.factor = Vh.T * sizes
        self.outside = torch.from_numpy(U.T.copy()).to(W) @ basis.T

    def _coupled(self) -> int:
        """The first row that the coming products are expected to have a part along."""
        if self.expected is None:
            return 0
        rows = np.flatnonzero(np.abs(self.expected).max(axis=1, initial=0.0))
        return int(rows[0]) if len(rows) else self.known

    def _rounding(self, size: float) -> float:
        return float(torch.finfo(self.Q.dtype).eps) * size

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
        keep = sizes > (max(drop, 100 * floor) if len(sizes) > 1 else floor)
        self._leave_out(~keep)
        self.width = min(int(keep.sum()), self.operator.size - self.known)
        if self.width == 0:
            return False
        kept = np.flatnonzero(keep)[: self.width]
        if len(sizes) == 1:
            self.next = self.outside  # a unit vector, orthogonal to the basis
        else:
            self.next = orthonormal(self.outside[torch.from_numpy(kept)], self.Q[: self.known])
        self.expected = np.zeros((self.known, self.width))
        overlap = (self.outside @ self.next.T).double().cpu().numpy()
        self.expected[self.known - len(sizes) :] = self.factor @ overlap
        self._place()
        return True

    def vanished(self, floor: float) -> bool:
        """Whether the sequence closed: its remainder is rounding, so it holds no copy of any eigenvalue twice."""
        return bool(np.linalg.norm(self.factor) <= 100 * floor)

    def renew(self, row: Tensor) -> None:
        """Go on from a fresh vector instead; what `advance` had chosen becomes a leak."""
        if self.width:
            self._leave_out(np.full(len(self.factor), True))
        self.next = orthonormal(row.to(self.Q), self.Q[: self.known])
        self.width, self.expected = 1, None
        self._place()

    def _leave_out(self, which: NDArray[np.bool_]) -> None:
        if which.any():
            leak = np.zeros((self.known, int(which.sum())))
            leak[self.known - len(self.factor) :] = self.factor[:, which]
            self.leaks.append(leak)

    def _place(self) -> None:
        if self.known + self.width <= self.capacity:
            self.Q[self.known : self.known + self.width] = self.next

    def restart(self, values: Array, Y: Array, pick: Callable[[Array, int], NDArray[np.int64]], k: int) -> None:
        """Keep the wanted Ritz vectors and as many neighbours as leave half of the room free."""
        count = min(max(k + self.width, self.capacity // 2), self.capacity - self.width - 1)
        kept = pick(values, count)
        Y = Y[:, kept]
        self.Q[:count] = torch.from_numpy(Y.T).to(self.Q) @ self.Q[: self.known]
        self.leaks = [Y[: len(leak)].T @ leak for leak in self.leaks]
        if self.expected is not None:
            self.expected = Y.T @ self.expected
        self.T[:] = 0.0
        self.T[np.arange(count), np.arange(count)] = values[kept]
        self.known = count
        self._place()

    def ritz_vectors(self, Y: Array) -> Tensor:
        """Unit vectors, signed so that the entry of largest magnitude is positive."""
        rows = torch.from_numpy(np.ascontiguousarray(Y.T)).to(self.Q) @ self.Q[: self.known]
        rows = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        largest = rows.abs().argmax(dim=1, keepdim=True)
        signed: Tensor = torch.sign(rows.gather(1, largest)) * rows
        return signed


def orthonormal(rows: Tensor, against: Tensor | None = None) -> Tensor:
    """Rows made orthonormal, and orthogonal to the rows of `against`; dependent rows are an error."""
    for _ in range(2):
        if against is not None and len(against):
            rows = rows - (rows @ against.T) @ against
        if len(rows) == 1:
            rows = rows / torch.linalg.vector_norm(rows)
        else:
            basis, R = torch.linalg.qr(rows.T)
            sizes = R.diagonal().abs()
            if float(sizes.min()) <= 1e-6 * float(sizes.max()):
                raise ValueError("start vectors must be linearly independent and not zero")
            rows = basis.T
    return finite("a basis vector", rows)


def _first_block(operator: Operator, start: Tensor | None, block: int, seed: int) -> Tensor:
    if start is not None:
        rows = start.detach().to(operator.device, operator.dtype).reshape(-1, start.shape[-1])
        if rows.shape[1] != operator.size:
            raise ValueError(f"start must have {operator.size} entries per vector, got {tuple(start.shape)}")
        rows = orthonormal(finite("start", rows))
        if len(rows) <= block:
            return rows
        # one sequence from the sum of the vectors beats a block of them unless they are already exact: a block
        # step gains as much as a single step, but costs a product for every vector
        return orthonormal(torch.stack([rows[part::block].sum(dim=0) for part in range(block)]))
    rows = orthonormal(normal((block, operator.size), seed, "lanczos").to(operator.device, operator.dtype))
    if operator.hint is not None and float(operator.hint.norm()) > 0:
        # the gradient leans towards the sharp directions: it saves a product or two, and costs nothing
        rows[0] += operator.hint / operator.hint.norm()
    return orthonormal(rows)


def _capacity(operator: Operator, k: int, block: int, max_basis: int | None) -> int:
    least = min(operator.size, 2 * k + 2 * block + 2)
    if max_basis is not None:
        return min(operator.size, whole("max_basis", max_basis, least=least))
    bytes_each = operator.size * torch.finfo(operator.dtype).bits // 8
    return int(min(operator.size, max(least, allowance(operator.device) // bytes_each), 20 * k + 1000))
