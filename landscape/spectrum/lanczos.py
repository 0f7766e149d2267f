"""Extreme eigenpairs by block Lanczos: full re-orthogonalisation, thick restarts, a residual test at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from landscape.errors import choose, finite, positive, whole
from landscape.operators import Operator, ScaledOperator, check_operator
from landscape.results import Array, Eigenpairs, Outcome, Progress
from landscape.runtime.memory import allowance
from landscape.spectrum.krylov_space import Space, norm, orthonormal, random_rows

WHICH: dict[str, Callable[[Array, int], NDArray[np.int64]]] = {
    # ascending Ritz values, k -> positions of the wanted ones, in descending order of value
    "largest": lambda values, k: np.arange(len(values))[::-1][:k],
    "smallest": lambda values, k: np.arange(len(values))[:k][::-1],
    "both": lambda values, k: np.r_[
        np.arange(len(values))[::-1][: (k + 1) // 2], np.arange(max(len(values) - (k + 1) // 2, 0))[: k // 2][::-1]
    ],
    "magnitude": lambda values, k: np.sort(np.argsort(-np.abs(values), kind="stable")[:k])[::-1],
}
CHEAP = 4096  # up to this dimension a product is cheap: there the default looks for what it may have missed
DOUBT = 1e-3  # the chance of a missed eigenvalue that is accepted
NEGLIGIBLE = 1e-10  # of the largest eigenvalue: too little to look for
PATIENCE = 8  # restarts within which residuals must halve


def eigenpairs(
    operator: Operator,
    k: int = 5,
    *,
    tol: float = 1e-3,
    which: str = "largest",
    start: Tensor | None = None,
    block: int = 1,
    verify: bool | None = None,
    max_products: int | None = None,
    max_basis: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Eigenpairs:
    """The k extreme eigenpairs of a symmetric operator, stopping once ||A v - t v|| <= tol |t| for all of them.

    which      "largest" (algebraic, the sharpness of the literature), "smallest", "both" ends, "magnitude".
    start      vectors to warm-start from, for example those of the previous round: (size,) or (count, size). A random
               part is added to each, because nothing is ever found at right angles to a start.
    block      vectors per step; finds up to `block` copies of an eigenvalue at once.
    verify     whether to go on after convergence until a missed eigenvalue (a copy, one of a cluster) is improbable.
               By default only where products are cheap, up to 4096 dimensions, and for as many products again as the
               pairs took, or 40. True: as long as max_products allows. False: only when the sequence closes by itself.
    max_products  default 100 + 20 k.
    max_basis  vectors held at once (default: a quarter of free memory); beyond it the basis is restarted thickly.

    A small residual says that a pair is one of the operator's eigenpairs, not that it is the first, second, ... one:
    that is what `verified` of the result says. It means that, but for a chance of 1 in 1000 at most, no eigenvalue
    lies beyond the returned ones by more than tol of the nearest (and by more than rounding, and than 1e-10 of the
    largest). It is certain when the Krylov space has become the whole space.

    Any size of operator will do, from the smallest to the largest numbers of its precision.

    Wu & Simon 2000 (thick restart); Parlett 1998, ch. 13 (block Lanczos).
    """
    check_operator(operator)
    k = whole("k", k, most=operator.dimension)
    positive("tol", tol)
    block = whole("block", block, most=operator.dimension)
    choose("which", which, WHICH)
    budget = whole("max_products", max_products, least=k) if max_products is not None else 100 + 20 * k
    scaled = ScaledOperator(operator)
    space = Space(scaled, _capacity(operator, k, block, max_basis), _first_block(operator, start, block, seed))
    search = _Search(space, k, tol, which, verify, seed)
    ritz = search.run(budget, progress)
    converged = ritz.residuals <= tol * np.abs(ritz.chosen)
    outcome = search.outcome
    if outcome is Outcome.EXACT:
        converged[:] = True
    elif outcome is Outcome.CONVERGED and not converged.all():
        outcome = Outcome.NOISE
    return Eigenpairs(
        values=scaled.restore(ritz.chosen),
        vectors=space.ritz_vectors(ritz.vectors[:, ritz.wanted]),
        residuals=scaled.restore(ritz.residuals),
        converged=converged,
        products=scaled.products,
        iterations=np.full(k, scaled.products, dtype=np.int64),
        outcome=outcome,
        verified=search.verified,
    )


@dataclass(frozen=True)
class _Ritz:
    """Eigenpairs of the projected operator, ascending, and what is known of the wanted ones among them."""

    values: Array
    vectors: Array
    wanted: NDArray[np.int64]
    estimates: Array  # of the wanted ones: residuals that the projection knows of
    floor: float  # what rounding adds

    @property
    def chosen(self) -> Array:
        return self.values[self.wanted]

    @property
    def residuals(self) -> Array:
        return self.estimates + self.floor

    def near(self, tol: float, roundings: int) -> NDArray[np.bool_]:
        """Which of the wanted pairs meet the tolerance, or are as good as rounding allows."""
        return (self.residuals <= tol * np.abs(self.chosen)) | (self.estimates <= roundings * self.floor)


class _Search:
    """Lanczos until the wanted pairs have converged, and for as long as it is asked to look for missed ones."""

    def __init__(self, space: Space, k: int, tol: float, which: str, verify: bool | None, seed: int):
        self.space, self.k, self.tol, self.which, self.seed = space, k, tol, which, seed
        self.pick = WHICH[which]
        self.forced = verify is True
        self.look = space.operator.dimension <= CHEAP if verify is None else verify
        self.enough: int | None = None  # products at which looking ends, unless forced
        self.settled: Array | None = None  # the wanted values when the last look began
        self.doubt = 1.0  # how likely something was missed by the looks that have ended
        self.starts = self.looks = 0
        self.best, self.patience, self.before = np.inf, PATIENCE, np.empty(0)
        self.verified, self.outcome = False, Outcome.MAX_ITERATIONS

    def run(self, budget: int, progress: Progress | None) -> _Ritz:
        space = self.space
        while True:
            space.multiply()
            spent = space.operator.products
            ritz = self._ritz()
            done = self._done(ritz, self.tol)
            if progress is not None:
                progress(min(spent, budget), budget)
            if space.full or (spent >= budget and space.known >= self.k):
                break
            closed = not space.advance(max(ritz.floor, 0.1 * self.tol * np.abs(ritz.chosen).min()), ritz.floor)
            # each look leaves something out of the basis for good, so the first ones begin below the tolerance
            if self._done(ritz, self.tol / (max(4 >> self.looks, 1) if self.look else 1)):
                if self._settle(ritz, closed):
                    break
            elif closed:
                space.renew(self._fresh())
            if space.crowded:
                if not done and self._stalls(ritz):
                    break
                self._restart(ritz)
        if progress is not None:
            progress(spent, spent)
        if space.full:
            self.outcome, self.verified = Outcome.EXACT, True
        elif done:
            self.outcome = Outcome.CONVERGED
        return ritz

    def _ritz(self) -> _Ritz:
        space = self.space
        values, vectors = np.linalg.eigh(space.T[: space.known, : space.known])
        wanted = self.pick(values, self.k)
        floor = space.rounding(float(np.abs(values).max()))
        return _Ritz(values, vectors, wanted, space.residuals(vectors[:, wanted]), floor)

    def _done(self, ritz: _Ritz, tol: float) -> bool:
        return len(ritz.wanted) == self.k and bool(ritz.near(tol, 1 + len(self.space.leaks)).all())

    def _settle(self, ritz: _Ritz, closed: bool) -> bool:
        """Whether the search may end now that all wanted pairs have converged; else begin or go on with a look."""
        space = self.space
        if not self._same_as_settled(ritz):
            self.doubt = 1.0
        chance = space.chance_of_more(*self._edges(ritz))
        self.verified = chance is not None and self.doubt * chance <= DOUBT
        if self.verified or not (self.look or space.vanished(ritz.floor)):
            return True
        spent = space.operator.products
        self.enough = self.enough or max(2 * spent, spent + 40)
        if spent >= self.enough and not self.forced:
            return True
        if chance is not None and not closed:
            return False  # the present sequence can tell, in a few steps more
        if chance is None:
            if self._same_as_settled(ritz):
                return True  # a look has ended without an answer: another would, too
            if not closed and 2 * space.known >= space.operator.dimension == space.capacity:
                return False  # the whole space is nearer than the end of a look
        elif chance > 0.5:
            return True
        else:
            self.doubt *= chance  # the next sequence is an independent witness
        self.settled = ritz.chosen
        self.looks += 1
        if closed:
            space.renew(self._fresh())
        else:
            space.restart_from(ritz.chosen, ritz.vectors[:, ritz.wanted], self._fresh())
        return False

    def _same_as_settled(self, ritz: _Ritz) -> bool:
        return self.settled is not None and np.allclose(ritz.chosen, self.settled, rtol=self.tol, atol=100 * ritz.floor)

    def _edges(self, ritz: _Ritz) -> tuple[float, float]:
        """Between these there may be any number of further eigenvalues; beyond them there should be none."""
        chosen, top = ritz.chosen, (self.k + 1) // 2
        least = max(10 * ritz.floor, NEGLIGIBLE * float(np.abs(ritz.values).max()), np.finfo(np.float64).tiny)
        low, high = -np.inf, np.inf
        if self.which == "magnitude":
            high = float(np.abs(chosen).min())
            low = -high
        if self.which in ("largest", "both"):
            high = float(chosen[top - 1 if self.which == "both" else -1])
        if self.which == "smallest" or (self.which == "both" and self.k > 1):
            low = float(chosen[top if self.which == "both" else 0])
        return low - max(self.tol * abs(low), least), high + max(self.tol * abs(high), least)

    def _fresh(self) -> Tensor:
        self.starts += 1
        return random_rows(self.space.operator, 1, self.seed, "second look", self.starts)

    def _restart(self, ritz: _Ritz) -> None:
        """Keep the wanted Ritz vectors and as many neighbours as leave half of the room free."""
        space = self.space
        count = min(max(self.k + space.width, space.capacity // 2), space.capacity - space.width - 1)
        kept = self.pick(ritz.values, count)
        space.reduce(ritz.values[kept], ritz.vectors[:, kept])

    def _stalls(self, ritz: _Ritz) -> bool:
        """Whether the last restarts have neither brought new values nor halved the residuals."""
        goal = np.maximum(self.tol * np.abs(ritz.chosen), ritz.floor)
        worst = float((ritz.estimates / goal).max())
        new = len(self.before) != len(ritz.chosen) or (np.abs(ritz.chosen - self.before) > ritz.residuals + goal).any()
        if new or worst < 0.5 * self.best:
            self.best, self.patience, self.before = worst, PATIENCE, ritz.chosen
        else:
            self.patience -= 1
        if self.patience:
            return False
        self.outcome = Outcome.STALLED
        return True


def _first_block(operator: Operator, start: Tensor | None, block: int, seed: int) -> Tensor:
    """Random rows to begin with, plus given vectors of the same length; where none are given, plus the hint."""
    rows = orthonormal(random_rows(operator, block, seed, "lanczos"))
    given = _given(operator, start, block) if start is not None else _hint(operator)
    if len(given) == operator.dimension:
        return rows  # which span everything as it is, while a sum with the given ones may not
    rows[: len(given)] += given
    return orthonormal(rows)


def _given(operator: Operator, start: Tensor, block: int) -> Tensor:
    rows = start.detach().to(operator.device, operator.dtype).reshape(-1, start.shape[-1] if start.ndim else 1)
    if rows.shape[1] != operator.size:
        raise ValueError(f"start must have {operator.size} entries per vector, got {tuple(start.shape)}")
    rows = finite("start", rows).clone()
    rows[:, operator.dimension :] = 0
    rows = rows / rows.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    if not bool(rows.any(dim=1).all()):
        raise ValueError("start has a vector of zeros: leave it out, or leave out start for a random one")
    rows = orthonormal(rows)
    if len(rows) <= block:
        return rows
    # one sequence from the sum of the vectors beats a block of them unless they are already exact: a block
    # step gains as much as a single step, but costs a product for every vector
    return orthonormal(torch.stack([rows[part::block].sum(dim=0) for part in range(block)]))


def _hint(operator: Operator) -> Tensor:
    """The gradient leans towards the sharp directions: it saves a product or two, and costs nothing."""
    if operator.hint is None or not 0 < norm(operator.hint) < float("inf"):
        return torch.empty(0, operator.size, dtype=operator.dtype, device=operator.device)
    return operator.hint[None] / norm(operator.hint)


def _capacity(operator: Operator, k: int, block: int, max_basis: int | None) -> int:
    size = operator.dimension
    least = min(size, 2 * k + 2 * block + 2)
    if max_basis is not None:
        return min(size, whole("max_basis", max_basis, least=least))
    bytes_each = operator.size * torch.finfo(operator.dtype).bits // 8
    return int(min(size, max(least, allowance(operator.device) // bytes_each), 20 * k + 1000))
