"""The generalised Gauss-Newton matrix of an objective: its Hessian without the curvature of the network itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from landscape.curvature.products import ChunkedObjective, CurvatureOperator, Graph
from landscape.losses.batches import Batch
from landscape.losses.outputs import advise, describe_returned
from landscape.runtime.replica import Replica


class GaussNewtonOperator(CurvatureOperator):
    """J' (d2 loss / d outputs2) J at a fixed theta; made by `Objective.gauss_newton`.

    objective: an objective with a loss of the model's outputs, a tensor.
    theta: a vector that nothing else changes.
    """

    _linear = True

    def __init__(self, objective: ChunkedObjective, theta: Tensor):
        sample = objective.chunk_loss.sample
        if objective.chunk_loss.batch_loss is not None:
            raise ValueError("gauss_newton needs model outputs and a loss of them: use loss=, not batch_loss=")
        if not isinstance(sample, Tensor):
            raise ValueError(
                f"gauss_newton needs a tensor of outputs, but the model returns {describe_returned(sample)}: "
                f"choose one with {advise(sample)}"
            )
        super().__init__(objective, theta, "auto")

    def _choose_engine(self) -> str:
        return "retained" if len(self._kept) == len(self._chunks) else "recompute"

    def _build(self, replica: Replica, chunk: Batch, leaves: Sequence[Tensor]) -> Graph:
        outputs = self.objective.chunk_loss.predict(replica, chunk)
        # J v as the derivative by u of J' u: two reverse passes, so threads may work side by side
        dual = torch.zeros_like(outputs, requires_grad=True)
        pulled = torch.autograd.grad(
            outputs, leaves, dual, create_graph=True, allow_unused=True, materialize_grads=True
        )
        used = [index for index, part in enumerate(pulled) if part.requires_grad]
        detached = outputs.detach().requires_grad_()
        sums = self.objective.chunk_loss.score(detached, chunk)
        scale = self._find_scale(sums.value, sums.count)
        (slope,) = torch.autograd.grad(scale * sums.loss, detached, create_graph=True)

        def multiply(vectors: Sequence[Tensor]) -> Sequence[Tensor]:
            (pushed,) = torch.autograd.grad(
                [pulled[index] for index in used], dual, [vectors[index] for index in used], retain_graph=True
            )
            (bent,) = (
                torch.autograd.grad(slope, detached, pushed, retain_graph=True, materialize_grads=True)
                if slope.requires_grad
                else (torch.zeros_like(pushed),)
            )
            return torch.autograd.grad(
                outputs, leaves, bent, retain_graph=True, allow_unused=True, materialize_grads=True
            )

        gradient = torch.autograd.grad(
            outputs, leaves, slope.detach(), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return Graph.of(multiply, gradient, sums, scale)

    def _forward(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        return self._recompute(chunk, rows)
