"""What the study `incompatibility` stores, of a method whose server keeps a direction."""

from __future__ import annotations

import numpy as np
import xarray as xr

from analysis.store import Answer
from analysis.study import variable
from tests.reports.results.answers import make_answer

ROUNDS, CLIENTS = [0, 5, 10], [0, 2]
DISPERSION = np.array([1e-5, 1e-3, 4e-3])
NUMBERS = {  # over rounds
    "radius": np.full(3, 0.05),
    "friendly_clients": np.array([0.9, 0.5, 0.0]),
    "friendly_batches": np.array([np.nan, 0.1, 0.2]),
    "loss": np.array([2.3, 1.0, 0.5]),
    "gradient_norm": np.array([1.0, 0.5, 0.1]),
    "global_rise": np.array([0.1, 0.2, 0.3]),
}
SCALED = {  # over rounds, and stored by size too: those are seven times as large here
    "rise_mean": np.array([0.2, 0.3, 0.4]),
    "rise_dispersion": 2 * DISPERSION,
    "rise_dispersion_noise": DISPERSION,
    "rise_dispersion_corrected": DISPERSION,
    "maximised_mean": np.array([0.3, 0.4, 0.5]),
    "maximised_dispersion": 6 * DISPERSION,
    "maximised_dispersion_noise": DISPERSION,
    "maximised_dispersion_corrected": 5 * DISPERSION,
    "heterogeneity": np.array([20.0, 50.0, 40.0]),
    "heterogeneity_noise": np.zeros(3),
    "batch_variance": np.array([0.1, 0.2, 0.3]),
}
OF_CLIENTS = [
    "examples",
    "client_loss",
    "rise_error",
    "client_global_rise",
    "client_gradient_norm",
    "gradient_cosine",
    "client_heterogeneity",
    "perturbation_distance",
    "perturbation_cosine",
    "maximised",
    "maximised_error",
    "batches",
    "client_batch_variance",
    "client_batch_variance_error",
    "client_friendly_batches",
    "friendly_batches_linear",
    "other_batch_rise",
    "gradient_error",
]
RISE = np.array([[0.1, 0.3], [0.2, 0.4], [0.3, 0.5]])
TRACKING, GAP = np.array([5.0, 4.0, 3.0]), np.array([0.15, np.nan, 0.1])


def stored(scale: float = 1.0, *, tracking: bool = True, gap: bool = False) -> Answer:
    numbers = NUMBERS | {name: scale * values for name, values in SCALED.items()}
    numbers |= {f"{name}_weighted": 7 * scale * values for name, values in SCALED.items()}
    if tracking:
        numbers |= {
            "tracking_error": scale * TRACKING,
            "tracking_noise": 0.1 * TRACKING,
            "tracking_cosine": TRACKING / 9,
        }
    if gap:
        numbers["delta_epsilon"] = scale * GAP
    both = ("round", "client")
    found = {
        **{name: variable("round", values, name) for name, values in numbers.items()},
        **{name: variable(both, np.ones((3, 2)), name) for name in OF_CLIENTS},
        "share": variable("client", [0.4, 0.6], "p_k, its share of the examples of E"),
        "rise": variable(both, scale * RISE, "R_k"),
        "other_rise": variable((*both, "other"), np.full((3, 2, 2), 0.1), "F_j(w + e_k) - F_j(w)"),
    }
    about = {"search": "(1 - a) d + a g" if tracking else "g", "clients": 2, "all_clients": 5}
    data = xr.Dataset(found, {"round": ROUNDS, "client": CLIENTS, "other": CLIENTS}, about)
    return make_answer("incompatibility", data, limit=None, clients=50)
