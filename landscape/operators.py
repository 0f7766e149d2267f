"""Symmetric linear operators: all that an eigenvalue or trace algorithm knows of a Hessian.

Stacks of vectors are rows (count, size), as everywhere in this package; `operator @ M` takes columns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from landscape.layout import Layout
from landscape.results import Array
from landscape.runtime.device import choose_sum_device, full_precision, to_float64
from landscape.runtime.workers import ordered_map

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

ROUNDING = 8  # products carry a few units of rounding relative to the largest eigenvalue: no residual is below that
ORDINARY = 40  # products between 2^-40 and 2^40 need no scaling: their squares and sums stay in any range
Number = TypeVar("Number", float, Array)


class Operator(ABC):
    """A symmetric matrix that is known by its products; a subclass supplies `_product` of a stack of rows."""

    size: int
    dtype: torch.dtype
    device: torch.device
    products: int = 0  # vectors multiplied so far
    layout: Layout | None = None  # set when the vector is a model's parameters
    workers: int = 1  # threads that may multiply at once

    _hint: Tensor | None = None

    @property
    def hint(self) -> Tensor | None:
        """A cheap vector likely to be rich in outlying eigenvectors, found when it is first asked for."""
        if self._hint is None:
            self._hint = self._find_hint()
        return self._hint

    @hint.setter
    def hint(self, vector: Tensor | None) -> None:
        self._hint = vector

    def _find_hint(self) -> Tensor | None:
        return None

    @property
    def dimension(self) -> int:
        """Number of dimensions with curvature: the parameters, which come first; running statistics have none."""
        return self.size if self.layout is None else self.layout.parameter_count

    @abstractmethod
    def _product(self, rows: Tensor) -> Tensor:
        """Multiply every row of (count, size)."""

    def matvec(self, vector: Tensor) -> Tensor:
        """Return H v.

        vector: v, of shape (size,).
        """
        if vector.shape != (self.size,):
            raise ValueError(f"vector must have shape ({self.size},), got {tuple(vector.shape)}")
        return self.matmat(vector[None])[0]

    def matmat(self, rows: Tensor) -> Tensor:
        """Multiply H with several vectors at once; returns a stack of the same shape.

        rows: one vector per row, (count, size).
        """
        if rows.ndim != 2 or rows.shape[1] != self.size:
            raise ValueError(f"rows must have shape (count, {self.size}), got {tuple(rows.shape)}")
        self.products += len(rows)
        with full_precision():
            return self._product(rows.detach().to(self.device, self.dtype))

    def __matmul__(self, other: Tensor) -> Tensor:
        """H @ v, or H @ M for columns (size, count)."""
        return self.matvec(other) if other.ndim == 1 else self.matmat(other.T).T

    def dense(self) -> Tensor:
        """The whole matrix (dimension, dimension): for small problems and for tests."""
        rows = torch.eye(self.dimension, self.size, dtype=self.dtype, device=self.device)
        return self.matmat(rows)[:, : self.dimension]

    def compress(self) -> Compression | None:
        """The same operator on fewer dimensions; None unless many are known to have one and the same eigenvalue."""
        return None

    def to_scipy(self) -> LinearOperator:
        """The same operator, (dimension, dimension), for SciPy's solvers."""
        from scipy.sparse.linalg import LinearOperator

        def multiply(vector: Array) -> Array:
            row = torch.zeros(self.size, dtype=torch.float64)
            row[: self.dimension] = torch.as_tensor(np.ascontiguousarray(vector).reshape(-1))
            return np.asarray(self.matvec(row)[: self.dimension].cpu())

        return LinearOperator((self.dimension, self.dimension), matvec=multiply, dtype=np.float64)


@dataclass(frozen=True)
class Compression:
    """An operator on fewer dimensions whose eigenpairs are those of another one, except for one known eigenvalue.

    operator: on compressed vectors.
    compress: rows of the other operator to compressed ones.
    expand: compressed rows to rows of the other operator; lengths and angles stay as they are.
    rest: the eigenvalue on all that compressing leaves out.
    """

    operator: Operator
    compress: Callable[[Tensor], Tensor]
    expand: Callable[[Tensor], Tensor]
    rest: float


def check_operator(operator: object) -> None:
    """Refuse anything but an operator, such as an objective or a matrix."""
    if not isinstance(operator, Operator):
        raise ValueError(
            f"expected an operator, got {type(operator).__name__}: write objective.hessian(theta), or "
            "MatrixOperator(matrix)"
        )


class MatrixOperator(Operator):
    """An explicit symmetric matrix as an operator.

    matrix: a dense, square, symmetric tensor of floating-point numbers.

    >>> MatrixOperator(torch.tensor([[2.0, 1.0], [1.0, 2.0]])) @ torch.tensor([1.0, 0.0])
    tensor([2., 1.])
    """

    def __init__(self, matrix: Tensor):
        if not isinstance(matrix, Tensor) or matrix.layout != torch.strided:
            raise ValueError(
                f"matrix must be a dense tensor, got {_describe(matrix)}: write torch.as_tensor(...) or .to_dense()"
            )
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"matrix must be square, got shape {tuple(matrix.shape)}")
        if not matrix.numel():
            raise ValueError("matrix must have at least one row, got shape (0, 0)")
        if not matrix.is_floating_point():
            raise ValueError(f"matrix must hold real floating-point numbers, got {matrix.dtype}: write matrix.double()")
        skew = float((matrix - matrix.T).abs().max())
        if skew > 1e-6 * float(matrix.abs().max()):
            raise ValueError(f"matrix must be symmetric, but differs from its transpose by {skew:.3g}")
        self.matrix = matrix
        self.size, self.dtype, self.device = len(matrix), matrix.dtype, matrix.device

    def _product(self, rows: Tensor) -> Tensor:
        return rows @ self.matrix


def _describe(matrix: object) -> str:
    return f"one of layout {matrix.layout}" if isinstance(matrix, Tensor) else type(matrix).__name__


class ScaledOperator(Operator):
    """operator / 2^exponent, so that squares and sums of its products neither over- nor underflow.

    operator: of any size of numbers.
    exponent: by default found by the first product, and 0 for ordinary numbers: then every bit is the operator's own.

    Half of the exponent goes into the vectors before the product, so that the product itself stays within range.
    """

    def __init__(self, operator: Operator, exponent: int | None = None):
        if operator.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"curvature cannot be measured in {operator.dtype}, whose rounding hides it: "
                "write Objective(..., dtype=torch.float32), or MatrixOperator(matrix.float())"
            )
        self.operator, self.exponent = operator, exponent
        self.size, self.dtype, self.device = operator.size, operator.dtype, operator.device
        self.layout, self.workers = operator.layout, operator.workers

    def _find_hint(self) -> Tensor | None:
        return self.operator.hint

    def _product(self, rows: Tensor) -> Tensor:
        return self._find_exponent(rows) if self.exponent is None else self._multiply_scaled(rows, self.exponent)

    def _multiply_scaled(self, rows: Tensor, exponent: int) -> Tensor:
        if exponent == 0:
            return self.operator.matmat(rows)
        half = exponent // 2
        return self.operator.matmat(rows * 2.0**-half) * 2.0 ** (half - exponent)

    def _find_exponent(self, rows: Tensor) -> Tensor:
        """Multiply, and again with another exponent until the product has an ordinary size."""
        self.exponent = 0
        images = first = self.operator.matmat(rows)
        widest = 4 - math.frexp(torch.finfo(self.dtype).smallest_normal)[1]
        for _ in range(3):
            change = _find_magnitude(images, widest)
            if change is None or abs(change) <= ORDINARY:
                break
            exponent = min(max(self.exponent + change, -widest), widest)
            if exponent == self.exponent:
                break
            self.exponent = exponent
            self.products += len(rows)
            images = self._multiply_scaled(rows, exponent)
        if not bool(images.any()) or not bool(torch.isfinite(images).all()):
            self.exponent, images = 0, first  # zero at any size, or not finite at any
        return images

    def restore(self, values: Number) -> Number:
        """Turn eigenvalues, residuals or traces of this operator into those of the original."""
        return values if not self.exponent else np.ldexp(values, self.exponent)

    def rounding(self, largest: float) -> float:
        """The size of residuals that are only rounding, if the largest eigenvalue has this magnitude."""
        return ROUNDING * float(torch.finfo(self.dtype).eps) * largest


def _find_magnitude(images: Tensor, widest: int) -> int | None:
    """The largest entry as a power of two; `widest` stands for infinity, its negative for zero, None for NaN."""
    largest = float(images.abs().max())
    if math.isnan(largest):
        return None
    if math.isinf(largest):
        return widest
    return math.frexp(largest)[1] if largest else -widest


class ShiftedOperator(Operator):
    """operator + shift * I: the same eigenvectors, every eigenvalue moved by `shift`.

    operator: the operator H.
    shift: a number.
    """

    def __init__(self, operator: Operator, shift: float):
        self.operator, self.shift = operator, shift
        self.size, self.dtype, self.device = operator.size, operator.dtype, operator.device
        self.layout = operator.layout

    def _find_hint(self) -> Tensor | None:
        return self.operator.hint

    def _product(self, rows: Tensor) -> Tensor:
        return self.operator.matmat(rows) + self.shift * rows


class RescaledOperator(Operator):
    """D H D for a diagonal D; with D = |theta| its spectrum does not change under ReLU rescalings.

    operator: the operator H.
    scale: (size,) the diagonal of D.
    """

    def __init__(self, operator: Operator, scale: Tensor):
        if scale.shape != (operator.size,):
            raise ValueError(f"scale must have shape ({operator.size},), got {tuple(scale.shape)}")
        self.operator, self.scale = operator, scale.to(operator.device, operator.dtype)
        self.size, self.dtype, self.device = operator.size, operator.dtype, operator.device
        self.layout = operator.layout

    def _find_hint(self) -> Tensor | None:
        return None if self.operator.hint is None else self.scale * self.operator.hint

    def _product(self, rows: Tensor) -> Tensor:
        return self.scale * self.operator.matmat(self.scale * rows)


class SumOperator(Operator):
    """sum_k weights[k] H_k, for example the global Hessian from the clients' own at the same theta.

    operators: H_k, of one size.
    weights: for example the clients' shares n_k / N of all examples; by default equal ones that sum to one.
    """

    def __init__(self, operators: Sequence[Operator], weights: Sequence[float] | None = None):
        if not operators:
            raise ValueError("a sum of operators needs at least one")
        sizes = sorted({operator.size for operator in operators})
        if len(sizes) > 1:
            raise ValueError(f"operators must have one size, got {sizes}")
        self.weights = [1.0 / len(operators)] * len(operators) if weights is None else list(weights)
        if len(self.weights) != len(operators):
            raise ValueError(f"one weight per operator: got {len(self.weights)} for {len(operators)}")
        self.operators = list(operators)
        first = operators[0]
        self.size, self.dtype, self.device, self.layout = first.size, first.dtype, first.device, first.layout

    def _find_hint(self) -> Tensor | None:
        total = torch.zeros(self.size, dtype=self.dtype, device=self.device)
        for operator, weight in zip(self.operators, self.weights, strict=True):
            if operator.hint is None:
                return None
            total += weight * operator.hint
        return total

    def _product(self, rows: Tensor) -> Tensor:
        # side by side: a client's data are often a single chunk, which leaves all cores but one without work
        workers = min(operator.workers for operator in self.operators)
        parts = ordered_map(lambda operator: to_float64(operator.matmat(rows)), self.operators, workers)
        total = torch.zeros(rows.shape, dtype=torch.float64, device=choose_sum_device(self.device))
        for part, weight in zip(parts, self.weights, strict=True):
            total += weight * part
        return total.to(self.device, self.dtype)
