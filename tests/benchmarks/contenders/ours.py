"""This package, with its defaults."""

from __future__ import annotations

import torch

from landscape import directions
from landscape.geometry.surface import plane
from landscape.objectives.objective import Objective
from landscape.spectrum.lanczos import eigenpairs
from tests.benchmarks.problem import Problem
from tests.benchmarks.worker import Answer, Work


def top(problem: Problem, *, k: int, residual: float, memory: str | None = None) -> Work:
    """The k largest eigenpairs; building the operator is part of the work."""
    objective = Objective(problem.model, (problem.inputs, problem.targets), memory=memory)

    def work() -> Answer:
        found = eigenpairs(objective.hessian(objective.theta), k=k, tol=residual)
        numbers = {"values": found.values.tolist(), "products": found.products}
        return Answer(numbers, {"vectors": found.vectors})

    return work


def top_of_many(problem: Problem, *, subset: int, residual: float) -> Work:
    """The largest eigenvalue, started from that of a subset of the images."""
    objective = Objective(problem.model, (problem.inputs, problem.targets))

    def work() -> Answer:
        part = objective.subset(subset).hessian(objective.theta)
        found = eigenpairs(objective.hessian(objective.theta), k=1, tol=residual, start=part)
        numbers = {"values": found.values.tolist(), "products": found.products, "subset_products": part.products}
        return Answer({**numbers, "residual": float(found.residuals[0] / abs(found.values[0]))}, {})

    return work


def surface(problem: Problem, *, steps: int) -> Work:
    """A plane of filter-normalised random directions around the model; corners and centre are left for checking."""
    objective = Objective(problem.model, (problem.inputs, problem.targets))
    theta = objective.theta

    def work() -> Answer:
        d1, d2 = directions.filter_normalized(objective.layout, theta, seed=0)
        found = plane(objective, theta, d1, d2, steps=steps, extent=1.0)
        cells = [(i, j) for i in (0, -1) for j in (0, -1)]
        points = torch.stack([theta.double() + found.x[i] * d1.double() + found.y[j] * d2.double() for i, j in cells])
        numbers = {"centre": found.loss[steps // 2, steps // 2], "points": [found.loss[cell] for cell in cells]}
        return Answer(numbers, {"points": points})

    return work
