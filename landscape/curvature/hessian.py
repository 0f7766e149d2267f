"""The Hessian of an objective as an operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from landscape.curvature.products import ChunkedObjective, CurvatureOperator, Graph, make_contiguous, unscale
from landscape.losses.batches import Batch
from landscape.losses.exact_losses import ExactLosses
from landscape.runtime.replica import Replica


class HessianOperator(CurvatureOperator):
    """H = d2 L / d theta2 of an objective at a fixed theta; made by `Objective.hessian`.

    objective: the loss.
    theta: a vector that nothing else changes.
    engine: how products are computed; see `landscape.curvature.products`.
    """

    def __init__(self, objective: ChunkedObjective, theta: Tensor, engine: str = "auto"):
        super().__init__(objective, theta, engine)

    def _build(self, replica: Replica, chunk: Batch, leaves: Sequence[Tensor]) -> Graph:
        sums = self.objective.chunk_loss.compute(replica, chunk)
        scale = self._find_scale(sums.value, sums.count)
        gradient = torch.autograd.grad(
            scale * sums.loss, leaves, create_graph=True, allow_unused=True, materialize_grads=True
        )
        curved = [index for index, part in enumerate(gradient) if part.requires_grad]

        def multiply(vectors: Sequence[Tensor]) -> Sequence[Tensor]:
            if not curved:
                return [torch.zeros_like(leaf) for leaf in leaves]
            return torch.autograd.grad(
                [gradient[index] for index in curved],
                leaves,
                [vectors[index] for index in curved],
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )

        return Graph.of(multiply, gradient, sums, scale)

    def _forward(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        count, scale = 0.0, 1.0
        parameters, fixed = self._leaves[: len(self._entries)], self._leaves[len(self._entries) :]
        with self.objective.replicas.borrow() as replica:
            replica.load(self.theta, self._statistics)
            batch = make_contiguous(chunk)  # forward mode views images in ways that channels-last ones do not allow

            def compute_sum(*leaves: Tensor) -> Tensor:
                nonlocal count
                replica.bind([*leaves, *fixed])
                with ExactLosses():
                    sums = self.objective.chunk_loss.compute(replica, batch)
                count = sums.count
                return scale * sums.loss

            try:
                if self.dtype != torch.float64:  # where the scale is always 1
                    with torch.no_grad():
                        scale = self._find_scale(float(compute_sum(*parameters)), count)
                gradient = torch.func.grad(compute_sum, argnums=tuple(range(len(self._entries))))
                leaves = tuple(leaf.detach() for leaf in parameters)
                products = [torch.func.jvp(gradient, leaves, tuple(self._shape(row)))[1] for row in rows]
            finally:
                replica.bind(replica.leaves)
        stacked = torch.stack([torch.cat([part.reshape(-1) for part in parts]) for parts in products])
        return unscale(stacked, scale), count
