"""Extreme eigenpairs by block Lanczos: full re-orthogonalisation, thick restarts, a residual test at every step.

A small residual says that a pair is one of the operator's eigenpairs, not that it is the first, second, ... one: a copy
of an eigenvalue or one of a cluster may have been missed. That is what `verified` of the result is about. If it is
True then, but for a chance of 1 in 1000 at most, no eigenvalue lies beyond the returned ones by more than tol of the
nearest (and by more than rounding, and than 1e-10 of the largest). It is certain once the Krylov space has become the
whole space. To verify, the search continues with a sequence from a new random vector: an independent witness.

Wu & Simon 2000 (thick restart); Parlett 1998, ch. 13 (block Lanczos).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from landscape.errors import choose, finite, positive, whole
from landscape.operators import Compression, Operator, ScaledOperator, check_operator
from landscape.progress import with_bar
from landscape.results import Array, Eigenpairs, Outcome, Progress
from landscape.runtime.device import full_precision
from landscape.runtime.workers import use_one_thread
from landscape.spectrum.krylov_space import MOST_BYTES, KrylovSpace, norm, orient, orthonormalise, random_rows

WHICH: dict[str, Callable[[Array, int], NDArray[np.int64]]] = {
    # ascending Ritz values, k -> positions of the wanted ones, in descending order of value
    "largest": lambda values, k: np.arange(len(values))[::-1][:k],
    "smallest": lambda values, k: np.arange(len(values))[:k][::-1],
    "both": lambda values, k: np.r_[
        np.arange(len(values))[::-1][: (k + 1) // 2], np.arange(max(len(values) - (k + 1) // 2, 0))[: k // 2][::-1]
    ],
    "magnitude": lambda values, k: np.sort(np.argsort(-np.abs(values), kind="stable")[:k])[::-1],
}
CHEAP = 4096  # up to this dimension a product is cheap: there the default verifies
DOUBT = 1e-3  # the chance of a missed eigenvalue that is accepted
NEGLIGIBLE = 1e-10  # of the largest eigenvalue: too little to search for
ROUGH = 1e-2  # residuals of a start: eigenvectors of a subset are further from those of all examples
USUAL = 20  # products for one pair, or a few more; each further pair takes about four
PATIENCE = 8  # restarts within which residuals must halve


@with_bar("eigenpairs")
@full_precision()
def eigenpairs(
    operator: Operator,
    k: int = 5,
    *,
    tol: float = 1e-3,
    which: str = "largest",
    start: Tensor | Operator | None = None,
    block: int = 1,
    verify: bool | None = None,
    max_products: int | None = None,
    max_basis: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Eigenpairs:
    """Compute the k extreme eigenpairs of a symmetric operator, until ||A v - t v|| <= tol |t| for all of them.

    operator: for example `objective.hessian(theta)` or `MatrixOperator(matrix)`; of any size of numbers.
    k: how many pairs. tol: relative tolerance of the residuals.
    which: "largest" (algebraic, the sharpness of the literature), "smallest", "both" ends, or "magnitude".
    start: vectors (size,) or (count, size) to start from, for example those of the previous round; or a cheaper
        operator, for example the Hessian of a subset, `objective.subset(2500).hessian(theta)`, whose eigenvectors are
        found first and taken. Its products are not counted. A random part is added to each start, because nothing is
        ever found at right angles to it.
    block: vectors per step; finds up to `block` copies of an eigenvalue at once.
    verify: whether to continue after convergence until a missed eigenvalue is improbable (see the module). None: only
        up to 4096 dimensions, where products are cheap, for as many products again as the pairs took, or 40. True: as
        long as max_products allows. False: only if the sequence ends by itself.
    max_products: most products with the operator; by default 100 + 20 k.
    max_basis: most vectors held at once, beyond which the basis is restarted; by default what 2 GiB hold.
    seed: of the random start. progress: called with (products spent, most products); by default a bar.

    >>> from landscape import MatrixOperator
    >>> eigenpairs(MatrixOperator(torch.diag(torch.tensor([3.0, -5.0, 1.0]))), k=2).values.round(4).tolist()
    [3.0, 1.0]
    """
    check_operator(operator)
    k = whole("k", k, most=operator.dimension)
    positive("tol", tol)
    block = whole("block", block, most=operator.dimension)
    choose("which", which, WHICH)
    budget = whole("max_products", max_products, least=k) if max_products is not None else 100 + 20 * k
    if verify is None and operator.dimension > CHEAP:
        verify = False
    if isinstance(start, Operator):
        start = _solve_cheaper(operator, start, k, tol=tol, which=which, block=block, max_basis=max_basis, seed=seed)

    def search(operator: Operator, start: Tensor | None) -> Eigenpairs:
        first = _make_first_block(operator, start, block, seed)
        space = KrylovSpace(ScaledOperator(operator), _choose_capacity(operator, k, block, max_basis), first)
        return _Search(space, k, tol, which, verify, seed).run(budget, progress)

    smaller = operator.compress()
    dimension = operator.dimension if smaller is None else smaller.operator.dimension
    with use_one_thread(dimension * (USUAL + 4 * k)):
        if smaller is not None and max(k, block) <= dimension:
            found = _search_smaller(operator, smaller, start, which, search)
            if found is not None:
                return found
        return search(operator, start)


def _search_smaller(
    operator: Operator,
    smaller: Compression,
    start: Tensor | None,
    which: str,
    search: Callable[[Operator, Tensor | None], Eigenpairs],
) -> Eigenpairs | None:
    """Search the operator on fewer dimensions; None if the start lies outside them, or a wanted pair may."""
    compressed = None if start is None else smaller.compress(_check_start(operator, start))
    if compressed is not None and not bool(compressed.any(dim=1).all()):
        return None
    found = search(smaller.operator, compressed)
    operator.products += found.products
    if not _lie_beyond(found.values, which, smaller.rest):
        return None
    return replace(found, vectors=orient(smaller.expand(found.vectors)))


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
    """Lanczos until the wanted pairs have converged, and on until it is verified that none was missed, if asked for."""

    def __init__(self, space: KrylovSpace, k: int, tol: float, which: str, verify: bool | None, seed: int):
        self.space, self.k, self.tol, self.which, self.seed = space, k, tol, which, seed
        self.pick = WHICH[which]
        self.forced = verify is True
        self.verify = space.operator.dimension <= CHEAP if verify is None else verify
        self.verify_until: int | None = None  # products at which verification ends, unless forced
        self.witnessed: Array | None = None  # the wanted values when the last new sequence began
        self.doubt = 1.0  # how likely something was missed by the sequences that have ended
        self.starts = self.witnesses = 0
        self.best, self.patience, self.before = np.inf, PATIENCE, np.empty(0)
        self.verified, self.outcome = False, Outcome.MAX_ITERATIONS

    def run(self, budget: int, progress: Progress | None) -> Eigenpairs:
        """Search with `budget` products or so."""
        ritz = self._iterate(budget, progress)
        converged = ritz.residuals <= self.tol * np.abs(ritz.chosen)
        if self.outcome is Outcome.EXACT:
            converged[:] = True
        elif self.outcome is Outcome.CONVERGED and not converged.all():
            self.outcome = Outcome.NOISE
        scaled = self.space.operator
        return Eigenpairs(
            values=scaled.restore(ritz.chosen),
            vectors=self.space.ritz_vectors(ritz.vectors[:, ritz.wanted]),
            residuals=scaled.restore(ritz.residuals),
            converged=converged,
            products=scaled.products,
            iterations=np.full(self.k, scaled.products, dtype=np.int64),
            outcome=self.outcome,
            verified=self.verified,
        )

    def _iterate(self, budget: int, progress: Progress | None) -> _Ritz:
        space = self.space
        while True:
            space.multiply()
            spent = space.operator.products
            ritz = self._find_ritz()
            done = self._is_done(ritz, self.tol)
            if progress is not None:
                progress(min(spent, budget), budget)
            if space.full or (spent >= budget and space.known >= self.k):
                break
            closed = not space.advance(max(ritz.floor, 0.1 * self.tol * np.abs(ritz.chosen).min()), ritz.floor)
            # each new sequence leaves something out of the basis for good, so the first ones begin below the tolerance
            if self._is_done(ritz, self.tol / (max(4 >> self.witnesses, 1) if self.verify else 1)):
                if self._may_end(ritz, closed):
                    break
            elif closed:
                space.renew(self._random_row())
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

    def _find_ritz(self) -> _Ritz:
        space = self.space
        values, vectors = np.linalg.eigh(space.T[: space.known, : space.known])
        wanted = self.pick(values, self.k)
        floor = space.rounding(float(np.abs(values).max()))
        return _Ritz(values, vectors, wanted, space.residuals(vectors[:, wanted]), floor)

    def _is_done(self, ritz: _Ritz, tol: float) -> bool:
        return len(ritz.wanted) == self.k and bool(ritz.near(tol, 1 + len(self.space.leaks)).all())

    def _may_end(self, ritz: _Ritz, closed: bool) -> bool:
        """Whether the search may end now that all wanted pairs have converged; else begin a sequence or go on."""
        space = self.space
        if not self._is_unchanged(ritz):
            self.doubt = 1.0
        chance = space.chance_of_more(*self._find_edges(ritz))
        self.verified = chance is not None and self.doubt * chance <= DOUBT
        if self.verified or not (self.verify or space.has_vanished(ritz.floor)):
            return True
        spent = space.operator.products
        self.verify_until = self.verify_until or max(2 * spent, spent + 40)
        if spent >= self.verify_until and not self.forced:
            return True
        if chance is not None and not closed:
            return False  # the present sequence can tell, in a few steps more
        if chance is None:
            if self._is_unchanged(ritz):
                return True  # a sequence has ended without an answer: another would, too
            if not closed and 2 * space.known >= space.operator.dimension == space.capacity:
                return False  # the whole space is nearer than the end of another sequence
        elif chance > 0.5:
            return True
        else:
            self.doubt *= chance  # the next sequence is an independent witness
        self.witnessed = ritz.chosen
        self.witnesses += 1
        if closed:
            space.renew(self._random_row())
        else:
            space.restart_from(ritz.chosen, ritz.vectors[:, ritz.wanted], self._random_row())
        return False

    def _is_unchanged(self, ritz: _Ritz) -> bool:
        """Whether the wanted values are those with which the last new sequence began."""
        last = self.witnessed
        return last is not None and np.allclose(ritz.chosen, last, rtol=self.tol, atol=100 * ritz.floor)

    def _find_edges(self, ritz: _Ritz) -> tuple[float, float]:
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

    def _random_row(self) -> Tensor:
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


def _make_first_block(operator: Operator, start: Tensor | None, block: int, seed: int) -> Tensor:
    """Random rows to begin with, plus the given vectors, normalised; where none are given, plus the hint."""
    rows = orthonormalise(random_rows(operator, block, seed, "lanczos"))
    given = _read_start(operator, start, block) if start is not None else _use_hint(operator)
    if len(given) == operator.dimension:
        return rows  # which span everything as it is, while a sum with the given ones may not
    rows[: len(given)] += given
    return orthonormalise(rows)


def _solve_cheaper(
    operator: Operator,
    cheaper: Operator,
    k: int,
    *,
    tol: float,
    which: str,
    block: int,
    max_basis: int | None,
    seed: int,
) -> Tensor:
    """The extreme eigenvectors of a cheaper operator, no more exactly than the two operators are alike."""
    if cheaper.size != operator.size:
        raise ValueError(f"start must be an operator of size {operator.size}, got one of size {cheaper.size}")
    rough = max(tol, ROUGH)
    return eigenpairs(
        cheaper, k, tol=rough, which=which, block=block, verify=False, max_basis=max_basis, seed=seed
    ).vectors


def _lie_beyond(values: Array, which: str, rest: float) -> bool:
    """Whether these wanted eigenvalues, in descending order, come before one of this value and any number of copies."""
    if which == "magnitude":
        return bool((np.abs(values) > abs(rest)).all())
    upper = {"largest": len(values), "smallest": 0, "both": (len(values) + 1) // 2}[which]
    return bool((values[:upper] > rest).all() and (values[upper:] < rest).all())


def _check_start(operator: Operator, start: Tensor) -> Tensor:
    rows = start.detach().to(operator.device, operator.dtype).reshape(-1, start.shape[-1] if start.ndim else 1)
    if rows.shape[1] != operator.size:
        raise ValueError(f"start must have {operator.size} entries per vector, got {tuple(start.shape)}")
    return finite("start", rows)


def _read_start(operator: Operator, start: Tensor, block: int) -> Tensor:
    rows = _check_start(operator, start).clone()
    rows[:, operator.dimension :] = 0
    rows = rows / rows.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    if not bool(rows.any(dim=1).all()):
        raise ValueError("start has a vector of zeros: leave it out, or leave out start for a random one")
    rows = orthonormalise(rows)
    if len(rows) <= block:
        return rows
    # one sequence from the sum of the vectors beats a block of them unless they are already exact: a block
    # step gains as much as a single step, but costs a product for every vector
    return orthonormalise(torch.stack([rows[part::block].sum(dim=0) for part in range(block)]))


def _use_hint(operator: Operator) -> Tensor:
    """The gradient leans towards the sharp directions: it saves a product or two, and costs nothing."""
    if operator.hint is None or not 0 < norm(operator.hint) < float("inf"):
        return torch.empty(0, operator.size, dtype=operator.dtype, device=operator.device)
    return operator.hint[None] / norm(operator.hint)


def _choose_capacity(operator: Operator, k: int, block: int, max_basis: int | None) -> int:
    size = operator.dimension
    least = min(size, 2 * k + 2 * block + 2)
    if max_basis is not None:
        return min(size, whole("max_basis", max_basis, least=least))
    bytes_each = operator.size * torch.finfo(operator.dtype).bits // 8
    return int(min(size, max(least, MOST_BYTES // bytes_each), 20 * k + 1000))
