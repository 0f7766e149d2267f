"""Sharpness of each participant's model on its own data and on everyone's, beside the global model.

At one point H = sum_k p_k H_k, so the operator of everyone's data is the weighted sum of the clients' operators: one
pass over the clients multiplies with both. (FedGloSS, Table 1; FedSAM/FedASAM, Figures 4 and 16.)
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from analysis.shared.model_points import describe_views, list_participants, load_model
from analysis.study import Clients, Datasets, Limit, Piece, Rounds, Seed, Study, Tolerance, Top, scalar, variable
from analysis.subjects import Subject
from landscape import eigenpairs
from landscape.geometry.directions import distance
from landscape.objectives.subsample_errors import combined_quotient_errors
from landscape.operators import SumOperator
from training.settings import settings

MEASURES = {  # what is measured of a model on some data -> what it means
    "eigenvalue": "eigenvalues of {model}",
    "standard_error": "their standard errors, as estimates of those on all examples; 0 where all were seen",
    "residual": "their residuals",
    "loss": "loss of {model}",
}


@settings
class Settings:
    """Whose models are measured, and how exactly. With a limit, everyone's data are those left of each client's."""

    rounds: Rounds = "last"
    top: Top = 1
    tol: Tolerance = 1e-3
    limit: Limit = None
    clients: Clients = None
    seed: Seed = 0


def choose_clients(subject: Subject, settings: Settings) -> dict[int, list[int]]:
    """Rounds that keep local models, each with the participants that are measured."""
    return list_participants(subject, subject.select(settings.rounds), settings.clients)


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece for each participant's model, and one for the global model, of every round."""
    sizes = {client: subject.count("train", client, settings.limit) for client in subject.clients}
    everyone, products = sum(sizes.values()), 10 + 4 * settings.top
    return [
        Piece(
            round,
            client,
            passes=1.5 * products * (everyone + (everyone if client is None else sizes[client])),
            vectors=12 + 4 * settings.top,
        )
        for round, clients in choose_clients(subject, settings).items()
        for client in (*clients, None)
    ]


def measure(subject: Subject, settings: Settings, piece: Piece, earlier: Datasets) -> xr.Dataset:
    """One model, on everyone's data and on single clients'."""
    objectives = {k: subject.objective("train", k, limit=settings.limit) for k in subject.clients}
    theta = load_model(subject, piece).to(objectives[0].dtype)
    operators = {k: objective.hessian(theta) for k, objective in objectives.items()}
    losses = {k: objective.loss(theta) for k, objective in objectives.items()}
    shares = subject.shares(subject.clients)
    everyone = SumOperator([operators[k] for k in shares], list(shares.values()))

    def measure_on(client: int | None) -> dict[str, ArrayLike]:
        whom = shares if client is None else {client: 1.0}
        operator = everyone if client is None else operators[client]
        pairs = eigenpairs(operator, settings.top, tol=settings.tol, seed=settings.seed)
        errors = combined_quotient_errors({k: objectives[k] for k in whom}, whom, theta, pairs.vectors)
        loss = sum(share * losses[k] for k, share in whom.items())
        return {"eigenvalue": pairs.values, "standard_error": errors, "residual": pairs.residuals, "loss": loss}

    found = describe_views(piece, list(shares), measure_on, "rank", MEASURES, everyone=True)
    if piece.client is not None:
        found["distance"] = scalar(distance(theta, subject.point(piece.round)), "||w_k - w||")
    coords = {"client": list(shares)} if piece.client is None else {}
    return xr.Dataset(found, {"rank": np.arange(1, settings.top + 1), **coords})


def derive(subject: Subject, settings: Settings, answer: xr.Dataset) -> xr.Dataset:
    """Add how many examples of each client were seen."""
    clients = answer["client"].values.tolist()
    seen, sizes = ([subject.count("train", client, most) for client in clients] for most in (settings.limit, None))
    counts = {
        "examples": variable("client", seen, "examples of the client that were seen"),
        "population": variable("client", sizes, "examples that the client has"),
    }
    return answer.assign(counts).assign_attrs(examples=sum(seen), population=sum(sizes))


STUDY = Study(
    "local_global",
    __doc__,
    Settings,
    pieces,
    measure,
    derive,
    rounds=lambda subject, settings: list(choose_clients(subject, settings)),
    papers="002 T1 F2 F5, 003 F4 F16",
)
