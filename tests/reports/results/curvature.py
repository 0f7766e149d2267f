"""What the study `curvature` stores, with density and smallest eigenvalue."""

from __future__ import annotations

import numpy as np
import xarray as xr

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer

ROUNDS = np.array([0, 5, 10])
VALUES = np.array([[1.0, 0.9, 0.8, 0.7, 0.5], [40.0, 30.0, 25.0, 22.0, 20.0], [30.0, 20.0, 15.0, -12.0, 10.0]])
SMALLEST = np.array([-0.1, -3.0, -2.0])
NODES = np.array([[-2.0, 0.0, 10.0, 30.0], [-1.0, 1.0, 29.0, np.nan]])  # (probe, step); the second probe closed early
WEIGHTS = np.array([[0.1, 0.8, 0.05, 0.05], [0.2, 0.7, 0.1, np.nan]])


def stored(scale: float = 1.0, *, density: bool = True, smallest: bool = True) -> Answer:
    by_rank = ("round", "rank")
    values = scale * VALUES
    sure = np.ones(values.shape, dtype=bool)
    sure[1, 0] = sure[2, 4] = False
    found = {
        "eigenvalue": variable(by_rank, values, "eigenvalue of the Hessian, train loss"),
        "residual": variable(by_rank, 0.01 * np.abs(values), "||H v - lambda v||: some eigenvalue is as near as this"),
        "converged": variable(by_rank, sure, "whether the residual is below tol |lambda|"),
        "products": variable("round", [30, 20, 20], "Hessian products spent"),
        "loss": variable("round", [2.3, 1.0, 0.5], "train loss"),
        "gradient_norm": variable("round", [1.0, 0.5, 0.1], "norm of the gradient"),
        "norm": variable("round", [4.0, 5.0, 6.0], "norm of the weights"),
    }
    if smallest:
        found["smallest"] = variable("round", scale * SMALLEST, "smallest eigenvalue of the Hessian")
        found["smallest_residual"] = variable("round", 0.01 * scale * np.abs(SMALLEST), "its residual")
    if density:
        by_step = ("round", "probe", "step")
        nodes, weights = scale * np.stack([NODES, NODES, NODES]), np.stack([WEIGHTS] * 3)
        nodes[0] = weights[0] = np.nan  # a round whose quadrature failed is no reason to stop
        found["node"] = variable(by_step, nodes, "quadrature node of the spectral density")
        found["weight"] = variable(by_step, weights, "its weight; those of a probe sum to one")
    data = xr.Dataset(found, {"round": ROUNDS, "rank": np.arange(1, 6)})
    return make_answer("curvature", data, split="train", model="server", limit=None, top=5, density=2 * density, seed=0)
