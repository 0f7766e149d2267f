"""The truth, in float64 and without our package: plain double backward, textbook Lanczos, true residuals."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import vector_to_parameters

from tests.benchmarks.problem import Problem
from tests.benchmarks.processes import CORES

Array = NDArray[np.float64]
TOLERANCE = 1e-5  # of the reference's own residuals: its eigenvalues are then good to about 1e-9


class Reference:
    """Loss and Hessian products of a problem in float64; the graph of each batch's gradient is kept."""

    def __init__(self, problem: Problem):
        self.model = problem.model.double()
        self.parameters = list(self.model.parameters())
        self.batches = [(inputs.double(), targets) for inputs, targets in problem.batches]
        self.count = len(problem.targets)
        self.size = sum(parameter.numel() for parameter in self.parameters)
        self._gradients: list[Sequence[Tensor]] = []

    def loss(self, theta: Tensor | None = None) -> float:
        """Mean loss, at the model's own parameters unless told otherwise. Not to be mixed with products."""
        if theta is not None:
            vector_to_parameters(theta.double(), self.parameters)
        with torch.no_grad():
            sums = [functional.cross_entropy(self.model(x), y, reduction="sum") for x, y in self.batches]
        return float(sum(sums)) / self.count

    def product(self, vector: Tensor) -> Tensor:
        """H v, the batches side by side on all cores."""
        if not self._gradients:
            self._gradients = [self._gradient(x, y) for x, y in self.batches]
        parts = torch.split(vector.double(), [parameter.numel() for parameter in self.parameters])
        shaped = [part.view_as(parameter) for part, parameter in zip(parts, self.parameters, strict=True)]

        def one(gradient: Sequence[Tensor]) -> Tensor:
            torch.set_num_threads(1)
            products = torch.autograd.grad(gradient, self.parameters, shaped, retain_graph=True)
            return torch.cat([product.reshape(-1) for product in products])

        with ThreadPoolExecutor(CORES) as pool:
            return torch.stack(list(pool.map(one, self._gradients))).sum(0)

    def _gradient(self, inputs: Tensor, targets: Tensor) -> Sequence[Tensor]:
        loss = functional.cross_entropy(self.model(inputs), targets, reduction="sum") / self.count
        return torch.autograd.grad(loss, self.parameters, create_graph=True)


@dataclass(frozen=True)
class Spectrum:
    """The largest eigenvalues, and how many steps of plain Lanczos from a random start each target needs."""

    values: list[float]  # descending
    steps: dict[int, int]  # k -> steps until the k largest pairs have the residual asked for


def lanczos(reference: Reference, most: int, wanted: Sequence[int], residual: float) -> Spectrum:
    """Lanczos with full re-orthogonalisation (Paige 1972) until the `max(wanted)` largest pairs are exact.

    The pairs' residuals |beta s_m| come with every step, so the steps after which a solver without restarts
    could stop at `residual` are found on the way. They tell which settings of a peer are worth trying.
    """
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(reference.size, dtype=torch.float64, generator=generator)
    basis = torch.empty(most, reference.size, dtype=torch.float64)
    basis[0] = start / start.norm()
    diagonal: list[float] = []
    off: list[float] = []
    steps: dict[int, int] = {}
    values: Array = np.empty(0)
    for step in range(1, most + 1):
        used = basis[:step]
        vector = reference.product(used[-1])
        coefficients = used @ vector
        diagonal.append(float(coefficients[-1]))
        vector -= coefficients @ used
        vector -= (used @ vector) @ used
        beta = float(vector.norm())
        values, relative = _ritz(diagonal, off, beta)
        for k in wanted:
            if k not in steps and step > k and relative[:k].max() <= residual:
                steps[k] = step
        if step > max(wanted) and relative[: max(wanted)].max() <= TOLERANCE:
            return Spectrum(values[: max(wanted)].tolist(), steps)
        if step < most:
            off.append(beta)
            basis[step] = vector / beta
    raise RuntimeError(f"the reference needs more than {most} Lanczos steps for {max(wanted)} eigenvalues")


def _ritz(diagonal: list[float], off: list[float], beta: float) -> tuple[Array, Array]:
    matrix = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
    values, vectors = np.linalg.eigh(matrix)
    order = np.argsort(-values)
    return values[order], np.abs(beta * vectors[-1, order]) / np.abs(values[order])


@dataclass(frozen=True)
class Verdict:
    """What is true of a contender's pairs."""

    residual: float  # largest ||H v - rho v|| / |rho| with the Rayleigh quotient rho; of the pairs looked at
    checked: int
    error: float  # largest relative error of the values it reported


def verify(
    reference: Reference, values: Sequence[float], vectors: Tensor, truth: Sequence[float], residual: float
) -> Verdict:
    """True residuals, from the last pair on, and errors of the reported values.

    Stops at ten times the residual allowed: such a run has failed, and each look costs a product. The
    Rayleigh quotient is the value that favours the vector most.
    """
    order = np.argsort(-np.asarray(values))
    errors = [abs(values[index] - true) / abs(true) for index, true in zip(order, truth, strict=False)]
    worst, checked = 0.0, 0
    for index in reversed(order):
        vector = vectors[int(index)].double()
        vector = vector / vector.norm()
        product = reference.product(vector)
        quotient = float(vector @ product)
        worst = max(worst, float((product - quotient * vector).norm()) / abs(quotient))
        checked += 1
        if worst > 10 * residual:
            break
    return Verdict(worst, checked, max(errors))
