"""PyHessian 0.1 (Yao et al. 2020): power iteration, deflated by projection. It finds the largest |lambda|."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from pyhessian import hessian  # type: ignore[import-not-found]
from torch import nn

from tests.benchmarks.problem import Problem
from tests.benchmarks.worker import Answer, Work

# the package re-exports the class under the name of its module
INTERNALS: Any = sys.modules["pyhessian.hessian"]


def top(problem: Problem, *, k: int, tol: float, most: int, fed: str) -> Work:
    """fed "batch": all images at once, the graph of the gradient kept; "loader": batches, graphs built anew."""
    warnings.filterwarnings("ignore", message="Using backward")
    ways: dict[str, dict[str, Any]] = {
        "batch": {"data": (problem.inputs, problem.targets)},
        "loader": {"dataloader": problem.batches},
    }
    data = ways[fed]
    count = 0
    single, loader = INTERNALS.hessian_vector_product, hessian.dataloader_hv_product

    def counted_single(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return single(*arguments)

    def counted_loader(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return loader(*arguments)

    INTERNALS.hessian_vector_product, hessian.dataloader_hv_product = counted_single, counted_loader

    def work() -> Answer:
        nonlocal count
        count = 0
        torch.manual_seed(0)
        problem.model.zero_grad()
        operator = hessian(problem.model, nn.CrossEntropyLoss(), cuda=False, **data)
        values, vectors = operator.eigenvalues(maxIter=most, tol=tol, top_n=k)
        rows = torch.stack([torch.cat([part.reshape(-1) for part in vector]) for vector in vectors])
        return Answer({"values": values, "products": count}, {"vectors": rows.detach()})

    return work
