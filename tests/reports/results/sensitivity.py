"""What the study `sensitivity` stores: two participants of the last round, one of the round before."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable

LAYERS = np.array(["conv.weight", "conv.bias", "fc.weight"])
REMOVAL = np.array([[9.0, 9.0, 9.0], [0.1, 0.001, 0.3], [0.3, 0.003, 0.5]])
MOVED = np.array([[9.0, 9.0, 9.0], [1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])
ADAPTIVE = np.array([[9.0, 9.0, 9.0], [0.1, 0.2, np.nan], [0.3, 0.4, np.nan]])
CHOSEN = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 1]])  # by "square"; the second participant does not want conv.weight


def stored(scale: float = 1.0) -> Stored:
    row, by_layer = ("row",), ("row", "layer")
    chosen = np.stack([CHOSEN, 1 - CHOSEN, 1 - CHOSEN], axis=1).astype(np.int8)
    variables = {
        "round_of": Variable(row, np.array([5, 10, 10]), "communication round"),
        "client": Variable(row, np.array([7, 0, 3]), "participant"),
        "layer": Variable(("layer",), LAYERS, "parameter tensor"),
        "entries": Variable(("layer",), np.array([9, 1, 20]), "number of weights"),
        "measure": Variable(("measure",), np.array(["square", "mean", "minmax"]), "how movement is compared"),
        "loss": Variable(row, np.array([0.3, 0.2, 0.1]), "loss of the client's model on its own data"),
        "gradient_norm": Variable(row, np.array([0.3, 0.2, 0.1]), "norm of its gradient"),
        "moved": Variable(by_layer, scale * MOVED, "||w_j - w_g,j||^2 (eq. 11)"),
        "chosen": Variable(("row", "measure", "layer"), chosen, "1 for the layers that FedFSA would choose"),
        "adaptive": Variable(by_layer, ADAPTIVE, "mean of |w_j - w_g,j| / ||w_j - w_g,j||, FedSoL's radius"),
        "removal": Variable(by_layer, scale * REMOVAL, "|L(W + e) - L(W + e without e_j)| (eq. 7)"),
    }
    for name in ("loss_error", "sam_rise", "global_sensitivity"):
        variables[name] = Variable(row, np.zeros(3), name)
    for name in ("rise", "first_order", "global_first_order", "layer_gradient_norm"):
        variables[name] = Variable(by_layer, 7 * REMOVAL, name)
    tables = {"layers": Table(variables, {"radius": 0.05, "layers": 2, "reference": "sent"})}
    return Stored("sensitivity", {"limit": None, "radius": 0.05}, {"batchnorm": ["frozen"], "seed": [0]}, tables)
