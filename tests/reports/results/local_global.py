"""What the study `local_global` stores, of two rounds."""

from __future__ import annotations

import numpy as np

from analysis.store import Stored, Table, Variable

ROUNDS, CLIENTS = np.array([5, 10, 10]), np.array([0, 3, 1])  # of the rows: clients 1 and 3 took part in round 10
OWN, EVERYONE, WHOLE = np.array([np.nan, 2.0, 3.0]), np.array([9.0, 40.0, 30.0]), np.array([9.0, 12.0])


def stored(scale: float = 1.0) -> Stored:
    rank = Variable(("rank",), np.array([1]), "place of the eigenvalue, largest first")
    row, by_rank = ("row",), ("row", "rank")
    local = {
        "round_of": Variable(row, ROUNDS, "communication round"),
        "client": Variable(row, CLIENTS, "participant"),
        "rank": rank,
        "local_eigenvalue": Variable(by_rank, scale * OWN[:, None], "eigenvalues on the client's own data"),
        "local_residual": Variable(by_rank, 0.001 * scale * OWN[:, None], "their residuals"),
        "global_eigenvalue": Variable(by_rank, scale * EVERYONE[:, None], "eigenvalues on everyone's data"),
        "global_residual": Variable(by_rank, 0.001 * scale * EVERYONE[:, None], "their residuals"),
        "local_loss": Variable(row, np.array([0.1, 0.2, 0.3]), "loss on the client's own data"),
        "global_loss": Variable(row, np.array([1.1, 1.2, 1.3]), "loss on everyone's data"),
        "distance": Variable(row, np.array([0.5, 0.6, 0.7]), "||w_k - w||"),
    }
    each, by_client = np.array([[8.0, 9.0, 10.0, 11.0]] * 2), ("round", "client")
    shared = {
        "round": Variable(("round",), np.array([5, 10]), "communication round"),
        "client": Variable(("client",), np.arange(4), "client"),
        "rank": rank,
        "global_eigenvalue": Variable(("round", "rank"), scale * WHOLE[:, None], "on everyone's data"),
        "global_residual": Variable(("round", "rank"), 0.001 * scale * WHOLE[:, None], "their residuals"),
        "global_loss": Variable(("round",), np.array([1.0, 0.9]), "loss on everyone's data"),
        "local_eigenvalue": Variable((*by_client, "rank"), scale * each[..., None], "on each client"),
        "local_residual": Variable((*by_client, "rank"), 0.001 * scale * each[..., None], "their residuals"),
        "local_loss": Variable(by_client, 0.1 * each, "loss on each client's data"),
    }
    tables = {"local_models": Table(local), "global_model": Table(shared)}
    return Stored("local_global", {"limit": None, "top": 1}, {"batchnorm": ["frozen"], "seed": [0]}, tables)
