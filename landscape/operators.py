"""Symmetric linear operators: all that an eigenvalue or trace algorithm ever sees of a Hessian.

Stacks of vectors are rows (count, size), as everywhere in this package; `operator @ M` takes columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from landscape.layout import Layout
from landscape.workers import ordered_map


class Operator(ABC):
    """A symmetric matrix known by its products. A new kind supplies `_product` of a stack of rows."""

    size: int
    dtype: torch.dtype
    device: torch.device
    products: int = 0  # vectors multiplied so far
    layout: Layout | None = None  # set when the vector is a model's parameters
    hint: Tensor | None = None  # a cheap vector likely to be rich in outlying eigenvectors
    workers: int = 1  # threads that may multiply at once

    @abstractmethod
    def _product(self, rows: Tensor) -> Tensor:
        """Multiply every row of (count, size)."""

    def matvec(self, vector: Tensor) -> Tensor:
        """H v for one vector (size,)."""
        if vector.shape != (self.size,):
            raise ValueError(f"vector must have shape ({self.size},), got {tuple(vector.shape)}")
        return self.matmat(vector[None])[0]

    def matmat(self, rows: Tensor) -> Tensor:
        """H applied to each row of a stack (count, size)."""
        if rows.ndim != 2 or rows.shape[1] != self.size:
            raise ValueError(f"rows must have shape (count, {self.size}), got {tuple(rows.shape)}")
        self.products += len(rows)
        return self._product(rows.detach().to(self.device, self.dtype))

    def __matmul__(self, other: Tensor) -> Tensor:
        """H @ v, or H @ M for columns (size, count)."""
        return self.matvec(other) if other.ndim == 1 else self.matmat(other.T).T

    def dense(self) -> Tensor:
        """The whole matrix: for small problems and for tests."""
        return self.matmat(torch.eye(self.size, dtype=self.dtype, device=self.device))

    def to_scipy(self) -> Any:
        """The same operator for SciPy's solvers."""
        from scipy.sparse.linalg import LinearOperator

        def multiply(vector: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            row = torch.as_tensor(np.ascontiguousarray(vector).reshape(-1))
            return np.asarray(self.matvec(row).cpu())

        return LinearOperator((self.size, self.size), matvec=multiply, dtype=np.float64)


class MatrixOperator(Operator):
    """An explicit symmetric matrix."""

    def __init__(self, matrix: Tensor):
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"matrix must be square, got shape {tuple(matrix.shape)}")
        skew = float((matrix - matrix.T).abs().max()) if matrix.numel() else 0.0
        if skew > 1e-6 * float(matrix.abs().max()):
            raise ValueError(f"matrix must be symmetric, but differs from its transpose by {skew:.3g}")
        self.matrix = matrix
        self.size, self.dtype, self.device = len(matrix), matrix.dtype, matrix.device

    def _product(self, rows: Tensor) -> Tensor:
        return rows @ self.matrix


class ShiftedOperator(Operator):
    """H + shift * I: the same eigenvectors, every eigenvalue moved by `shift`."""

    def __init__(self, operator: Operator, shift: float):
        self.operator, self.shift = operator, shift
        self.size, self.dtype, self.device = operator.size, operator.dtype, operator.device
        self.layout, self.hint = operator.layout, operator.hint

    def _product(self, rows: Tensor) -> Tensor:
        return self.operator.matmat(rows) + self.shift * rows


class RescaledOperator(Operator):
    """D H D for a diagonal D. With D = |theta| its spectrum does not change under ReLU rescalings."""

    def __init__(self, operator: Operator, scale: Tensor):
        if scale.shape != (operator.size,):
            raise ValueError(f"scale must have shape ({operator.size},), got {tuple(scale.shape)}")
        self.operator, self.scale = operator, scale.to(operator.device, operator.dtype)
        self.size, self.dtype, self.device = operator.size, operator.dtype, operator.device
        self.layout = operator.layout
        self.hint = None if operator.hint is None else self.scale * operator.hint

    def _product(self, rows: Tensor) -> Tensor:
        return self.scale * self.operator.matmat(self.scale * rows)


class SumOperator(Operator):
    """sum_k weights[k] H_k: the global Hessian from the clients' own at the same theta (weights n_k / N)."""

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
        hints = [operator.hint for operator in operators]
        if all(hint is not None for hint in hints):
            self.hint = sum(
                (weight * hint for weight, hint in zip(self.weights, hints, strict=True) if hint is not None),
                torch.zeros(self.size, dtype=self.dtype, device=self.device),
            )

    def _product(self, rows: Tensor) -> Tensor:
        # side by side: a client's data are often a single chunk, which leaves all cores but one without work
        workers = min(operator.workers for operator in self.operators)
        parts = ordered_map(lambda operator: operator.matmat(rows).double(), self.operators, workers)
        total = torch.zeros(rows.shape, dtype=torch.float64, device=self.device)
        for part, weight in zip(parts, self.weights, strict=True):
            total += weight * part
        return total.to(self.dtype)
