"""What the study `curvature` stores, with density and smallest eigenvalue."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable

ROUNDS = np.array([0, 5, 10])
VALUES = np.array([[1.0, 0.9, 0.8, 0.7, 0.5], [40.0, 30.0, 25.0, 22.0, 20.0], [30.0, 20.0, 15.0, -12.0, 10.0]])
SMALLEST = np.array([-0.1, -3.0, -2.0])
NODES = np.array([[-2.0, 0.0, 10.0, 30.0], [-1.0, 1.0, 29.0, np.nan]])  # (probe, step); the second probe closed early
WEIGHTS = np.array([[0.1, 0.8, 0.05, 0.05], [0.2, 0.7, 0.1, np.nan]])


def stored(scale: float = 1.0, *, density: bool = True, smallest: bool = True) -> Stored:
    by_rank = ("round", "rank")
    values = scale * VALUES
    sure = np.ones(values.shape, dtype=np.int8)
    sure[1, 0] = sure[2, 4] = 0
    rounds = Variable(("round",), ROUNDS, "communication round")
    spectrum = {
        "round": rounds,
        "rank": Variable(("rank",), np.arange(1, 6), "place of the eigenvalue, largest first"),
        "eigenvalue": Variable(by_rank, values, "eigenvalue of the Hessian, train loss"),
        "residual": Variable(by_rank, 0.01 * np.abs(values), "||H v - lambda v||: some eigenvalue is as near as this"),
        "converged": Variable(by_rank, sure, "1 where the residual is below tol |lambda|"),
        "products": Variable(("round",), np.array([30, 20, 20]), "Hessian products spent"),
        "loss": Variable(("round",), np.array([2.3, 1.0, 0.5]), "train loss"),
        "gradient_norm": Variable(("round",), np.array([1.0, 0.5, 0.1]), "norm of the gradient"),
        "norm": Variable(("round",), np.array([4.0, 5.0, 6.0]), "norm of the weights"),
    }
    if smallest:
        spectrum["smallest"] = Variable(("round",), scale * SMALLEST, "smallest eigenvalue of the Hessian")
        spectrum["smallest_residual"] = Variable(("round",), 0.01 * scale * np.abs(SMALLEST), "its residual")
    tables = {"spectrum": Table(spectrum)}
    if density:
        by_step = ("round", "probe", "step")
        nodes, weights = scale * np.stack([NODES, NODES, NODES]), np.stack([WEIGHTS] * 3)
        nodes[0] = weights[0] = np.nan  # a round whose quadrature failed is no reason to stop
        tables["density"] = Table(
            {
                "round": rounds,
                "node": Variable(by_step, nodes, "quadrature node of the spectral density"),
                "weight": Variable(by_step, weights, "its weight; those of a probe sum to one"),
            }
        )
    settings = {"split": "train", "model": "server", "limit": None, "top": 5, "density": 2 * density, "seed": 0}
    return Stored("curvature", settings, {"batchnorm": ["frozen"], "seed": [0]}, tables)
