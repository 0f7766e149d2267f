"""Flat for whom: every participant's model seen from its own data and from everyone's, beside the global model.

At one point H = sum_k p_k H_k, so the operator of everyone's data is the weighted sum of the clients' operators: one
pass over the clients multiplies with both. (FedGloSS, Table 1; FedSAM/FedASAM, Figures 4 and 16.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from analysis.shared.places import local_models
from analysis.shared.spread import PARTS, quotient_errors
from analysis.store import Table, Variable
from analysis.study import Arrays, Checked, Piece, Study, limit_setting, rounds_setting, seed_setting, setting, variable
from analysis.subjects import Subject
from landscape import Objective, eigenpairs
from landscape.operators import Operator, SumOperator

DOUBT = "their standard errors, as estimates of those on all examples; 0 where all were seen"
GLOBAL = -1  # stands for the global model where clients are counted


@dataclass(frozen=True)
class Settings(Checked):
    """Whose models are looked at, and how exactly. With a limit, everyone's data are those left of each client's."""

    rounds: str = rounds_setting("last")
    top: int = setting(1, "how many of the largest eigenvalues", least=1)
    tol: float = setting(1e-3, "residual ||H v - lambda v|| / |lambda| to reach", positive=True)
    limit: int | None = limit_setting()
    clients: int | None = setting(None, "most participants whose models are looked at", least=1, absent="all of them")
    seed: int = seed_setting()


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
    objectives = {k: subject.objective("train", k, limit=settings.limit) for k in shares}
    losses = {k: objective.loss(theta) for k, objective in objectives.items()}
    at = theta.to(objectives[0].dtype)
    arrays: Arrays = {
        "global_eigenvalue": wide.values,
        "global_standard_error": everyones_errors(objectives, shares, at, wide.vectors),
        "global_residual": wide.residuals,
        "global_loss": np.asarray(sum(shares[k] * losses[k] for k in shares)),
        "distance": np.asarray(float((theta - subject.point(piece.round)).double().norm())),
    }
    if piece.client == GLOBAL:  # seen from each client in turn
        near = [eigenpairs(operators[k], settings.top, tol=settings.tol, seed=settings.seed) for k in shares]
        arrays |= {
            "local_eigenvalue": np.stack([pair.values for pair in near]),
            "local_standard_error": np.stack(
                [quotient_errors(objectives[k], at, pair.vectors) for k, pair in zip(shares, near, strict=True)]
            ),
            "local_residual": np.stack([pair.residuals for pair in near]),
            "local_loss": np.asarray([losses[k] for k in shares]),
        }
    else:
        own = eigenpairs(operators[piece.client], settings.top, tol=settings.tol, seed=settings.seed)
        arrays |= {
            "local_eigenvalue": own.values,
            "local_standard_error": quotient_errors(objectives[piece.client], at, own.vectors),
            "local_residual": own.residuals,
            "local_loss": np.asarray(losses[piece.client]),
        }
    return arrays


def everyones_errors(
    objectives: Mapping[int, Objective], shares: Mapping[int, float], theta: Tensor, vectors: Tensor
) -> NDArray[np.float64]:
    """Standard errors of v' H v, H = sum of p_k H_k, from those of the clients that a part of their data stands for."""
    drawn = [client for client, objective in objectives.items() if objective.population is not None]
    parts = max(math.ceil(PARTS / max(len(drawn), 1)), 2)  # many clients: few parts of each will do
    squares = [(shares[k] * quotient_errors(objectives[k], theta, vectors, parts)) ** 2 for k in drawn]
    return np.asarray(np.sqrt(sum(squares, np.zeros(len(vectors)))))


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    looked = chosen(subject, settings)
    rounds = list(looked)
    sizes = {client: len(subject.examples("train", client)[1]) for client in subject.clients}
    seen = {client: min(size, settings.limit or size) for client, size in sizes.items()}
    rank = Variable(("rank",), np.arange(1, settings.top + 1), "place of the eigenvalue, largest first")
    rows = [(round, client) for round, clients in looked.items() for client in clients]
    own, every, where = "the client's own data", "everyone's data", "the client's model"
    each = partial(variable, found, [f"round {round} client {client}" for round, client in rows])
    local = {
        "round_of": Variable(("row",), np.asarray([round for round, _ in rows]), "communication round"),
        "client": Variable(("row",), np.asarray([client for _, client in rows]), "participant"),
        "rank": rank,
        "local_eigenvalue": each("local_eigenvalue", ("row", "rank"), f"eigenvalues of {where} on {own}"),
        "local_standard_error": each("local_standard_error", ("row", "rank"), DOUBT),
        "local_residual": each("local_residual", ("row", "rank"), "their residuals"),
        "global_eigenvalue": each("global_eigenvalue", ("row", "rank"), f"eigenvalues of {where} on {every}"),
        "global_standard_error": each("global_standard_error", ("row", "rank"), DOUBT),
        "global_residual": each("global_residual", ("row", "rank"), "their residuals"),
        "examples": Variable(("row",), np.asarray([seen[k] for _, k in rows]), "examples of the client that were seen"),
        "population": Variable(("row",), np.asarray([sizes[k] for _, k in rows]), "examples that the client has"),
        "local_loss": each("local_loss", ("row",), f"loss of {where} on {own}"),
        "global_loss": each("global_loss", ("row",), f"loss of {where} on {every}"),
        "distance": each("distance", ("row",), "||w_k - w||"),
    }
    about = {"examples": sum(seen.values()), "population": sum(sizes.values())}
    each = partial(variable, found, [f"round {round} global" for round in rounds])
    by_client = ("round", "client")
    shared = {
        "round": Variable(("round",), np.asarray(rounds), "communication round"),
        "client": Variable(("client",), np.asarray(subject.clients), "client"),
        "rank": rank,
        "global_eigenvalue": each(
            "global_eigenvalue", ("round", "rank"), f"eigenvalues of the global model on {every}"
        ),
        "global_standard_error": each("global_standard_error", ("round", "rank"), DOUBT),
        "global_residual": each("global_residual", ("round", "rank"), "their residuals"),
        "examples": Variable(("client",), np.asarray(list(seen.values())), "examples of the client that were seen"),
        "population": Variable(("client",), np.asarray(list(sizes.values())), "examples that the client has"),
        "global_loss": each("global_loss", ("round",), f"loss of the global model on {every}"),
        "local_eigenvalue": each("local_eigenvalue", (*by_client, "rank"), "those of the global model on each client"),
        "local_standard_error": each("local_standard_error", (*by_client, "rank"), DOUBT),
        "local_residual": each("local_residual", (*by_client, "rank"), "their residuals"),
        "local_loss": each("local_loss", by_client, "loss of the global model on each client's data"),
    }
    return {"local_models": Table(local, about), "global_model": Table(shared, about)}


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
