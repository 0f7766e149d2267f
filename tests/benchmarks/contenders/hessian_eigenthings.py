"""hessian-eigenthings 1.0.0a5 (Golmant et al. 2018): Lanczos without restarts."""

from __future__ import annotations

from hessian_eigenthings import HessianOperator, lanczos, supervised_loss  # type: ignore[import-not-found]
from torch import Tensor
from torch.nn import functional

from tests.benchmarks.problem import Problem
from tests.benchmarks.worker import Answer, Work


class Counting(HessianOperator):  # type: ignore[misc]
    count = 0

    def matvec(self, v: Tensor) -> Tensor:
        self.count += 1
        product: Tensor = super().matvec(v)
        return product


def top(problem: Problem, *, k: int, steps: int) -> Work:
    """Re-orthogonalised always: left alone it stops that above 50 steps and returns copies."""

    def work() -> Answer:
        operator = Counting(problem.model, problem.batches, supervised_loss(functional.cross_entropy))
        found = lanczos(operator, k=k, max_iter=steps, reorthogonalize=True, which="LA", seed=0)
        numbers = {"values": found.eigenvalues.tolist(), "products": operator.count}
        return Answer(numbers, {"vectors": found.eigenvectors})

    return work
