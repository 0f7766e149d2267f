"""Flat for whom: every participant's model seen from its own data and from everyone's, beside the global model.

At one point H = sum_k p_k H_k, so the operator of everyone's data is the weighted sum of the clients' operators: one
pass over the clients multiplies with both. (FedGloSS, Table 1; FedSAM/FedASAM, Figures 4 and 16.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from analysis.places import local_models
from analysis.store import Table, Variable
from analysis.study import Arrays, Piece, Study, variable
from analysis.subjects import Subject
from landscape import eigenpairs
from landscape.errors import positive, whole
from landscape.operators import Operator, SumOperator

GLOBAL = -1  # stands for the global model where clients are counted


@dataclass(frozen=True)
class Settings:
    """rounds: those with local models. top: eigenvalues wanted. limit: examples of each client; all by default."""

    rounds: str = "last"
    top: int = 1
    tol: float = 1e-3
    limit: int | None = None
    clients: int | None = None  # most participants looked at; all by default
    seed: int = 0

    def __post_init__(self) -> None:
        whole("top", self.top)
        positive("tol", self.tol)


def chosen(subject: Subject, settings: Settings) -> dict[int, list[int]]:
    """Rounds that keep local models, each with the participants that are looked at."""
    kept = local_models(subject, subject.select(settings.rounds))
    return {round: sorted(clients)[: settings.clients] for round, clients in kept.items()}


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    (subject,) = subjects
    sizes = {client: len(subject.examples("train", client)[1]) for client in subject.clients}
    sizes = {client: min(size, settings.limit or size) for client, size in sizes.items()}
    everyone, products = sum(sizes.values()), 10 + 4 * settings.top
    planned = []
    for round, clients in chosen(subject, settings).items():
        for client in (*clients, GLOBAL):
            own = sizes.get(client, everyone)
            name = "global" if client == GLOBAL else f"client {client}"
            work = 1.5 * products * (own + everyone)
            planned.append(Piece(f"round {round} {name}", work, 12 + 4 * settings.top, round=round, client=client))
    return planned


def client_operators(subject: Subject, settings: Settings, theta: Tensor) -> dict[int, Operator]:
    """H_k at one point for every client."""
    found: dict[int, Operator] = {}
    for client in subject.clients:
        objective = subject.objective("train", client, limit=settings.limit)
        found[client] = objective.hessian(theta.to(objective.dtype))
    return found


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    (subject,) = subjects
    points = subject.local_points(piece.round)
    theta = subject.point(piece.round) if piece.client == GLOBAL else points[piece.client]
    operators = client_operators(subject, settings, theta)
    shares = subject.shares(subject.clients)
    everyone = SumOperator([operators[k] for k in shares], list(shares.values()))
    wide = eigenpairs(everyone, settings.top, tol=settings.tol, seed=settings.seed)
    losses = {k: subject.objective("train", k, limit=settings.limit).loss(theta) for k in shares}
    arrays: Arrays = {
        "global_eigenvalue": wide.values,
        "global_residual": wide.residuals,
        "global_loss": np.asarray(sum(shares[k] * losses[k] for k in shares)),
        "distance": np.asarray(float((theta - subject.point(piece.round)).double().norm())),
    }
    if piece.client == GLOBAL:  # seen from each client in turn
        near = [eigenpairs(operators[k], settings.top, tol=settings.tol, seed=settings.seed) for k in shares]
        arrays |= {
            "local_eigenvalue": np.stack([pair.values for pair in near]),
            "local_residual": np.stack([pair.residuals for pair in near]),
            "local_loss": np.asarray([losses[k] for k in shares]),
        }
    else:
        own = eigenpairs(operators[piece.client], settings.top, tol=settings.tol, seed=settings.seed)
        arrays |= {
            "local_eigenvalue": own.values,
            "local_residual": own.residuals,
            "local_loss": np.asarray(losses[piece.client]),
        }
    return arrays


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    looked = chosen(subject, settings)
    rounds = list(looked)
    rank = Variable(("rank",), np.arange(1, settings.top + 1), "place of the eigenvalue, largest first")
    rows = [(round, client) for round, clients in looked.items() for client in clients]
    own, every, where = "the client's own data", "everyone's data", "the client's model"
    each = partial(variable, found, [f"round {round} client {client}" for round, client in rows])
    local = {
        "round_of": Variable(("row",), np.asarray([round for round, _ in rows]), "communication round"),
        "client": Variable(("row",), np.asarray([client for _, client in rows]), "participant"),
        "rank": rank,
        "local_eigenvalue": each("local_eigenvalue", ("row", "rank"), f"eigenvalues of {where} on {own}"),
        "local_residual": each("local_residual", ("row", "rank"), "their residuals"),
        "global_eigenvalue": each("global_eigenvalue", ("row", "rank"), f"eigenvalues of {where} on {every}"),
        "global_residual": each("global_residual", ("row", "rank"), "their residuals"),
        "local_loss": each("local_loss", ("row",), f"loss of {where} on {own}"),
        "global_loss": each("global_loss", ("row",), f"loss of {where} on {every}"),
        "distance": each("distance", ("row",), "||w_k - w||"),
    }
    each = partial(variable, found, [f"round {round} global" for round in rounds])
    by_client = ("round", "client")
    shared = {
        "round": Variable(("round",), np.asarray(rounds), "communication round"),
        "client": Variable(("client",), np.asarray(subject.clients), "client"),
        "rank": rank,
        "global_eigenvalue": each(
            "global_eigenvalue", ("round", "rank"), f"eigenvalues of the global model on {every}"
        ),
        "global_residual": each("global_residual", ("round", "rank"), "their residuals"),
        "global_loss": each("global_loss", ("round",), f"loss of the global model on {every}"),
        "local_eigenvalue": each("local_eigenvalue", (*by_client, "rank"), "those of the global model on each client"),
        "local_residual": each("local_residual", (*by_client, "rank"), "their residuals"),
        "local_loss": each("local_loss", by_client, "loss of the global model on each client's data"),
    }
    return {"local_models": Table(local), "global_model": Table(shared)}


STUDY = Study(
    name="local_global",
    about="sharpness of each participant's model on its own data and on everyone's, beside the global model",
    settings=Settings,
    rounds=lambda subject, settings: list(chosen(subject, settings)),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="002 T1 F2 F5, 003 F4 F16",
)
