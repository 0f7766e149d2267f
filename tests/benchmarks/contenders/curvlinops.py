"""curvlinops 3.0.1 (Dangel et al. 2025) with SciPy's eigsh, that is ARPACK's implicitly restarted Lanczos."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from curvlinops import HessianLinearOperator  # type: ignore[import-not-found]
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import nn

from tests.benchmarks.problem import Problem
from tests.benchmarks.worker import Answer, Work


def top(problem: Problem, *, k: int, tol: float, ncv: int | None) -> Work:
    """ncv: vectors in the basis, None for SciPy's max(2 k + 1, 20). Its check for determinism counts as set-up."""
    parameters = list(problem.model.parameters())
    operator = HessianLinearOperator(problem.model, nn.CrossEntropyLoss(), parameters, problem.batches)
    exported = operator.to_scipy()

    def work() -> Answer:
        count = 0

        def multiply(vector: Any) -> Any:
            nonlocal count
            count += 1
            return exported.matvec(vector)

        counting = LinearOperator(exported.shape, matvec=multiply, dtype=exported.dtype)
        start = np.random.default_rng(0).standard_normal(exported.shape[0])
        values, vectors = eigsh(counting, k=k, which="LA", tol=tol, ncv=ncv, v0=start)
        rows = torch.from_numpy(np.ascontiguousarray(vectors.T))
        return Answer({"values": values.tolist(), "products": count}, {"vectors": rows})

    return work
