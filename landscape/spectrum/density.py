"""The spectrum of an operator as a density, by stochastic Lanczos quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from landscape.errors import whole
from landscape.operators import Operator, ScaledOperator
from landscape.progress import with_bar
from landscape.results import Array, Density, Progress
from landscape.runtime.device import full_precision, to_float64
from landscape.runtime.memory import available
from landscape.spectrum.krylov_space import MOST_BYTES, norm
from landscape.spectrum.trace import BLOCK, draw_signs


@with_bar("spectral density")
@full_precision()
def spectral_density(
    operator: Operator, *, steps: int = 80, probes: int = 10, seed: int = 0, progress: Progress | None = None
) -> Density:
    """Estimate the spectral density by stochastic Lanczos quadrature.

    operator: for example `objective.hessian(theta)`.
    steps: of Lanczos per probe; more resolve finer structure.
    probes: random vectors; more lower the standard error.
    seed: of the probes, which are those of `trace`: the first moment times the size is Hutchinson's trace.
    progress: called with (products done, products in all); by default a bar, see `landscape.show_progress`.

    Each probe v runs `steps` of Lanczos, Q H Q' = T. The eigenvalues t_i of T are nodes, the squared first components
    w_i of its eigenvectors weights: v'f(H)v / v'v = sum_i w_i f(t_i) for every polynomial f of degree below 2 steps
    (Golub and Meurant 1994; Ghorbani et al. 2019).

    >>> from landscape import MatrixOperator
    >>> density = spectral_density(MatrixOperator(torch.diag(torch.tensor([1.0, 2.0, 3.0]))), steps=3, probes=4)
    >>> round(density.moment(1)[0], 4)
    2.0
    """
    whole("steps", steps)
    whole("probes", probes)
    dimension = operator.dimension
    scaled = ScaledOperator(operator)
    together = min(_choose_block(operator, min(steps, dimension)), probes)
    nodes, weights = np.full((2, probes, steps), np.nan)
    for first in range(0, probes, together):
        block = range(first, min(first + together, probes))

        def report(step: int, block: range = block) -> None:
            if progress is not None:
                progress(block.start * steps + step * len(block), probes * steps)

        nodes[block], weights[block] = quadrature(scaled, draw_signs(operator, block, seed), steps, report)
    return Density(nodes, weights, dimension, products=scaled.products)


@full_precision()
def quadrature(
    operator: Operator, starts: Tensor, steps: int, report: Callable[[int], None] | None = None
) -> tuple[Array, Array]:
    """Lanczos quadrature from each start: nodes and weights (count, steps).

    operator: a symmetric operator.
    starts: (count, size) rows that are not zero.
    steps: of Lanczos. Where the Krylov space closes before, the quadrature is exact and the rest of the row is NaN.
    report: called with the number of steps done.
    """
    scaled = operator if isinstance(operator, ScaledOperator) else ScaledOperator(operator)
    longest = min(steps, operator.dimension)
    runs = [_Recurrence(start, longest) for start in starts.to(operator.device, operator.dtype)]
    for step in range(1, longest + 1):
        growing = [run for run in runs if not run.closed]
        if not growing:
            break
        images = scaled.matmat(torch.stack([run.newest for run in growing]))
        for run, image in zip(growing, images, strict=True):
            run.extend(image)
        if report is not None and step < longest:
            report(step)
    nodes, weights = np.full((2, len(runs), steps), np.nan)
    for row, run in enumerate(runs):
        values, vectors = np.linalg.eigh(run.tridiagonal())
        nodes[row, : len(values)], weights[row, : len(values)] = scaled.restore(values), vectors[0] ** 2
    if report is not None:
        report(steps)
    return nodes, weights


class _Recurrence:
    """One Lanczos recurrence with full re-orthogonalisation: T gains a row for every product."""

    def __init__(self, start: Tensor, longest: int):
        length = norm(start)
        if length == 0:
            raise ValueError("a Lanczos run cannot start from a zero vector")
        self.basis = torch.empty(longest, len(start), dtype=start.dtype, device=start.device)
        self.basis[0] = start / length
        self.alphas: list[float] = []  # diagonal of T
        self.betas: list[float] = []  # off-diagonal of T
        self.closed = False

    @property
    def newest(self) -> Tensor:
        return self.basis[len(self.alphas)]

    def extend(self, image: Tensor) -> None:
        """Take in H times the newest vector, and find the next one unless there is none."""
        self.alphas.append(float(to_float64(self.newest) @ to_float64(image)))
        if not math.isfinite(self.alphas[-1]):
            raise ValueError("the operator's product is not finite: are all entries of theta and of the data finite?")
        known = self.basis[: len(self.alphas)]
        if len(known) == len(self.basis):
            self.closed = True
            return
        for _ in range(2):  # one pass leaves errors of the size that cancelled; "twice is enough" (Kahan, Parlett)
            image = image - (known @ image) @ known
        beta = norm(image)
        # Products carry 10-100 roundings of noise (float32, deep networks), and a coupling this small moves a
        # moment by its square only.
        scale = max(map(abs, self.alphas)) + 2 * max(self.betas, default=0.0)
        if beta <= 100 * torch.finfo(image.dtype).eps * scale:
            self.closed = True
            return
        self.betas.append(beta)
        self.basis[len(self.alphas)] = image / beta

    def tridiagonal(self) -> Array:
        return np.diag(self.alphas) + np.diag(self.betas, 1) + np.diag(self.betas, -1)


def _choose_block(operator: Operator, steps: int) -> int:
    """How many Krylov bases are built at once, one at least and one block at most."""
    each = steps * operator.size * torch.finfo(operator.dtype).bits // 8
    room = available(operator.device)
    if each > room:
        raise ValueError(
            f"{steps} Lanczos steps keep {each / 2**30:.1f} GiB of vectors, but {room / 2**30:.1f} GiB are free: "
            f"write steps={max(room // 2 * steps // each, 1)} or fewer"
        )
    return min(max(MOST_BYTES // each, 1), BLOCK)
