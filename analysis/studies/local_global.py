"""Flat for whom: every participant's model seen from its own data and from everyone's, beside the global model.

At one point H = sum_k p_k H_k, so the operator of everyone's data is the weighted sum of the clients' operators: one
pass over the clients multiplies with both. (FedGloSS, Table 1; FedSAM/FedASAM, Figures 4 and 16.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from analysis.shared.model_points import local_models
from analysis.shared.spread import PARTS, quotient_errors
from analysis.study import Limit, Piece, Rounds, Seed, Study, scalar, variable
from analysis.subjects import Subject
from landscape import Objective, eigenpairs
from landscape.operators import Operator, SumOperator
from landscape.results import Eigenpairs
from training.settings import Count, Positive, settings

STANDARD_ERROR = "their standard errors, as estimates of those on all examples; 0 where all were seen"
OWN, EVERYONE = "the client's own data", "everyone's data"


@settings
class Settings:
    """Whose models are measured, and how exactly. With a limit, everyone's data are those left of each client's."""

    rounds: Rounds = "last"
    top: Count = Field(default=1, description="how many of the largest eigenvalues")
    tol: Positive = Field(default=1e-3, description="residual ||H v - lambda v|| / |lambda| to reach")
    limit: Limit = None
    clients: Count | None = Field(
        default=None, description="most participants whose models are measured; none: all of them"
    )
    seed: Seed = 0


def choose_clients(subject: Subject, settings: Settings) -> dict[int, list[int]]:
    """Rounds that keep local models, each with the participants that are measured."""
    kept = local_models(subject, subject.select(settings.rounds))
    return {round: sorted(clients)[: settings.clients] for round, clients in kept.items()}


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    """One piece for each participant's model, and one for the global model, of every round."""
    (subject,) = subjects
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


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, earlier: Sequence[xr.Dataset]) -> xr.Dataset:
    """One model, on everyone's data and on single clients'."""
    (subject,) = subjects
    assert piece.round is not None
    theta = subject.point(piece.round) if piece.client is None else subject.local_points(piece.round)[piece.client]
    objectives = {k: subject.objective("train", k, limit=settings.limit) for k in subject.clients}
    operators = {k: objective.hessian(theta.to(objective.dtype)) for k, objective in objectives.items()}
    shares = subject.shares(subject.clients)
    at = theta.to(objectives[0].dtype)

    def solve(operator: Operator) -> Eigenpairs:
        return eigenpairs(operator, settings.top, tol=settings.tol, seed=settings.seed)

    wide = solve(SumOperator([operators[k] for k in shares], list(shares.values())))
    losses = {k: objective.loss(theta) for k, objective in objectives.items()}
    errors = combine_errors(objectives, shares, at, wide.vectors)
    global_loss = float(sum(shares[k] * losses[k] for k in shares))
    if piece.client is None:
        near = [solve(operators[k]) for k in shares]
        spread = [quotient_errors(objectives[k], at, pair.vectors) for k, pair in zip(shares, near, strict=True)]
        found = _describe_global(wide, errors, global_loss) | _describe_on_clients(near, spread, losses)
        coords = {"client": list(shares)}
    else:
        own = solve(operators[piece.client])
        spread = [quotient_errors(objectives[piece.client], at, own.vectors)]
        distance = float((theta - subject.point(piece.round)).double().norm())
        found = _describe_local(own, spread[0], losses[piece.client], wide, errors, global_loss, distance)
        coords = {}
    return xr.Dataset(found, {"rank": np.arange(1, settings.top + 1), **coords})


def _describe_local(
    own: Eigenpairs,
    own_errors: NDArray[np.float64],
    own_loss: float,
    wide: Eigenpairs,
    wide_errors: NDArray[np.float64],
    wide_loss: float,
    distance: float,
) -> dict[str, xr.Variable]:
    """Variables of a participant's model."""
    model = "eigenvalues of the client's model"
    return {
        "local_eigenvalue": variable("rank", own.values, f"{model} on {OWN}"),
        "local_standard_error": variable("rank", own_errors, STANDARD_ERROR),
        "local_residual": variable("rank", own.residuals, "their residuals"),
        "global_eigenvalue": variable("rank", wide.values, f"{model} on {EVERYONE}"),
        "global_standard_error": variable("rank", wide_errors, STANDARD_ERROR),
        "global_residual": variable("rank", wide.residuals, "their residuals"),
        "local_loss": scalar(own_loss, f"loss of the client's model on {OWN}"),
        "global_loss": scalar(wide_loss, f"loss of the client's model on {EVERYONE}"),
        "distance": scalar(distance, "||w_k - w||"),
    }


def _describe_global(wide: Eigenpairs, errors: NDArray[np.float64], loss: float) -> dict[str, xr.Variable]:
    """Variables of the global model on everyone's data."""
    return {
        "global_model_eigenvalue": variable("rank", wide.values, f"eigenvalues of the global model on {EVERYONE}"),
        "global_model_standard_error": variable("rank", errors, STANDARD_ERROR),
        "global_model_residual": variable("rank", wide.residuals, "their residuals"),
        "global_model_loss": scalar(loss, f"loss of the global model on {EVERYONE}"),
    }


def _describe_on_clients(
    near: Sequence[Eigenpairs], errors: Sequence[NDArray[np.float64]], losses: Mapping[int, float]
) -> dict[str, xr.Variable]:
    """Variables of the global model on each client's data."""
    axes, model = ("client", "rank"), "the global model on each client's data"
    return {
        "global_model_on_client_eigenvalue": variable(axes, [pair.values for pair in near], f"eigenvalues of {model}"),
        "global_model_on_client_standard_error": variable(axes, errors, STANDARD_ERROR),
        "global_model_on_client_residual": variable(axes, [pair.residuals for pair in near], "their residuals"),
        "global_model_on_client_loss": variable("client", list(losses.values()), f"loss of {model}"),
    }


def combine_errors(
    objectives: Mapping[int, Objective], shares: Mapping[int, float], theta: Tensor, vectors: Tensor
) -> NDArray[np.float64]:
    """Standard errors of v' H v, H = sum of p_k H_k, from those of the clients that a part of their data stands for."""
    drawn = [client for client, objective in objectives.items() if objective.population is not None]
    parts = max(math.ceil(PARTS / max(len(drawn), 1)), 2)  # many clients: few parts of each will do
    squares = [(shares[k] * quotient_errors(objectives[k], theta, vectors, parts)) ** 2 for k in drawn]
    return np.asarray(np.sqrt(sum(squares, np.zeros(len(vectors)))))


def derive(subjects: Sequence[Subject], settings: Settings, answer: xr.Dataset) -> xr.Dataset:
    """Add how many examples of each client were seen."""
    (subject,) = subjects
    clients = answer["client"].values.tolist()
    seen, sizes = ([subject.count("train", client, most) for client in clients] for most in (settings.limit, None))
    counts = {
        "examples": variable("client", seen, "examples of the client that were seen"),
        "population": variable("client", sizes, "examples that the client has"),
    }
    return answer.assign(counts).assign_attrs(examples=sum(seen), population=sum(sizes))


STUDY = Study(
    name="local_global",
    about="sharpness of each participant's model on its own data and on everyone's, beside the global model",
    settings=Settings,
    rounds=lambda subject, settings: list(choose_clients(subject, settings)),
    pieces=pieces,
    measure=measure,
    derive=derive,
    papers="002 T1 F2 F5, 003 F4 F16",
)
