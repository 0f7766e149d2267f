"""What the study `sensitivity` stores: two participants of the last round, one of the round before."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer, spread

ROUNDS, CLIENTS = [5, 10], [0, 3, 7]
PARTICIPANTS = [(5, 7), (10, 0), (10, 3)]  # round and client
LAYERS = np.array(["conv.weight", "conv.bias", "fc.weight"])
REMOVAL = np.array([[9.0, 9.0, 9.0], [0.1, 0.001, 0.3], [0.3, 0.003, 0.5]])  # (participant, layer)
MOVED = np.array([[9.0, 9.0, 9.0], [1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])
ADAPTIVE = np.array([[9.0, 9.0, 9.0], [0.1, 0.2, np.nan], [0.3, 0.4, np.nan]])
CHOSEN = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 1]])  # by "square"; the second participant does not want conv.weight


def stored(scale: float = 1.0, *, reference: str = "sent") -> Answer:
    def each(values: ArrayLike, long_name: str, *dims: str) -> xr.Variable:
        return variable(("round", "client", *dims), spread(ROUNDS, CLIENTS, PARTICIPANTS, values), long_name)

    chosen = np.stack([CHOSEN, 1 - CHOSEN, 1 - CHOSEN], axis=1)
    found = {
        "loss": each([0.3, 0.2, 0.1], "loss of the client's model on its own data"),
        "gradient_norm": each([0.3, 0.2, 0.1], "norm of its gradient"),
        "moved": each(scale * MOVED, "||w_j - w_g,j||^2 (eq. 11)", "layer"),
        "chosen": each(chosen, "whether FedFSA would choose the layer", "measure", "layer"),
        "adaptive": each(ADAPTIVE, "mean of |w_j - w_g,j| / ||w_j - w_g,j||, FedSoL's radius", "layer"),
        "removal": each(scale * REMOVAL, "|L(W + e) - L(W + e without e_j)| (eq. 7)", "layer"),
    }
    for name in ("loss_error", "sam_rise", "global_sensitivity"):
        found[name] = each(np.zeros(3), name)
    for name in ("rise", "first_order", "global_first_order", "layer_gradient_norm"):
        found[name] = each(7 * REMOVAL, name, "layer")
    coords = {
        "round": ROUNDS,
        "client": CLIENTS,
        "layer": LAYERS,
        "entries": variable("layer", [9, 1, 20], "number of weights"),
        "measure": variable("measure", ["square", "mean", "minmax"], "how movement is compared"),
    }
    data = xr.Dataset(found, coords, {"radius": 0.05, "layers": 2, "reference": reference})
    return make_answer("sensitivity", data, limit=None, radius=0.05)
