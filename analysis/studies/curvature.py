"""How sharp the global model is, round by round: largest eigenvalues, smallest, density and trace of the Hessian.

Each round warm-starts from the eigenvectors of the round before: they hardly turn between checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from analysis.shared.spread import quotient_errors
from analysis.store import Table, Variable
from analysis.study import (
    Arrays,
    Checked,
    Piece,
    Study,
    limit_setting,
    model_setting,
    rounds_setting,
    seed_setting,
    setting,
    variable,
)
from analysis.subjects import SPLITS, Subject
from landscape import eigenpairs, spectral_density, trace

DOUBT = "its standard error, as an estimate of that on all examples; 0 where all were seen"
DENSITY_STEPS = 80  # Lanczos steps of each probe of the density, as Ghorbani et al. 2019 take


@dataclass(frozen=True)
class Settings(Checked):
    """What is measured of the Hessian, where, and how exactly."""

    rounds: str = rounds_setting("all")
    model: str = model_setting()
    split: str = setting("train", "data of the loss", choices=SPLITS)
    top: int = setting(5, "how many of the largest eigenvalues", least=1)
    tol: float = setting(1e-3, "residual ||H v - lambda v|| / |lambda| to reach", positive=True)
    smallest: bool = setting(False, "the smallest eigenvalue too")
    density: int = setting(0, "probes of the spectral density, 10 or so; 0: no density", least=0)
    density_rounds: str = setting("last", "rounds whose density is taken, which costs many times what eigenvalues do")
    trace: int = setting(0, "probes of the trace, 100 or so; 0: no trace", least=0)
    limit: int | None = limit_setting()
    warm: bool = setting(True, "start each round from the eigenvectors of the round before")
    seed: int = seed_setting()


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    (subject,) = subjects
    everyone = len(subject.examples(settings.split)[1])
    count = min(everyone, settings.limit or everyone)
    # a product costs about 1.5 gradients; 10 + 4 k products find k pairs (measured on LeNet and ResNet), and k more
    # tell their standard errors on a subset
    products = 10 + 4 * settings.top + settings.top * (count < everyone) + settings.trace
    more = DENSITY_STEPS * settings.density
    dense = with_density(subject, settings)
    return [
        Piece(
            f"round {round}",
            1.5 * (products + more * (round in dense)) * count,
            vectors=12 + 4 * settings.top,
            round=round,
        )
        for round in subject.select(settings.rounds)
    ]


def with_density(subject: Subject, settings: Settings) -> list[int]:
    """Of the rounds looked at those whose density is taken; "last" is the last of them."""
    rounds = subject.select(settings.rounds)
    if not settings.density:
        return []
    if settings.density_rounds == "last":
        return rounds[-1:]
    return [round for round in subject.select(settings.density_rounds) if round in rounds]


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    (subject,) = subjects
    objective = subject.objective(settings.split, limit=settings.limit)
    theta = subject.point(piece.round, settings.model).to(objective.dtype)
    operator = objective.hessian(theta)
    before = found[list(found)[-1]].get("_vectors") if found and settings.warm else None
    start = torch.from_numpy(before) if before is not None else None
    pairs = eigenpairs(operator, settings.top, tol=settings.tol, start=start, seed=settings.seed)
    loss, gradient = objective.loss_and_gradient(theta)
    arrays: Arrays = {
        "eigenvalue": pairs.values,
        "eigenvalue_standard_error": quotient_errors(objective, theta, pairs.vectors),
        "residual": pairs.residuals,
        "converged": pairs.converged.astype(np.int8),
        "verified": np.asarray(pairs.verified, dtype=np.int8),
        "products": np.asarray(pairs.products),
        "loss": np.asarray(loss),
        "gradient_norm": np.asarray(float(gradient.double().norm())),
        "norm": np.asarray(float(theta[: gradient.numel()].double().norm())),
        "_vectors": pairs.vectors.cpu().numpy(),
    }
    if settings.smallest:
        low = eigenpairs(operator, 1, tol=settings.tol, which="smallest", seed=settings.seed)
        arrays |= {"smallest": low.values[0], "smallest_residual": low.residuals[0]}
    if piece.round in with_density(subject, settings):
        spectrum = spectral_density(operator, probes=settings.density, steps=DENSITY_STEPS, seed=settings.seed)
        arrays |= {"node": spectrum.nodes, "weight": spectrum.weights}
    if settings.trace:
        whole_trace = trace(operator, probes=settings.trace, seed=settings.seed)
        arrays |= {"trace": np.asarray(whole_trace.value), "trace_error": np.asarray(whole_trace.standard_error)}
    return arrays


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    rounds = subject.select(settings.rounds)
    keys = [f"round {round}" for round in rounds]

    every = partial(variable, found, keys)
    variables = {
        "round": Variable(("round",), np.asarray(rounds), "communication round"),
        "rank": Variable(("rank",), np.arange(1, settings.top + 1), "place of the eigenvalue, largest first"),
        "eigenvalue": every("eigenvalue", ("round", "rank"), f"eigenvalue of the Hessian, {settings.split} loss"),
        "eigenvalue_standard_error": every("eigenvalue_standard_error", ("round", "rank"), DOUBT),
        "residual": every("residual", ("round", "rank"), "||H v - lambda v||: some eigenvalue is as near as this"),
        "converged": every("converged", ("round", "rank"), "1 where the residual is below tol |lambda|"),
        "verified": every("verified", ("round",), "1 where a missed larger eigenvalue is improbable (1 in 1000)"),
        "products": every("products", ("round",), "Hessian products spent"),
        "loss": every("loss", ("round",), f"{settings.split} loss"),
        "gradient_norm": every("gradient_norm", ("round",), "norm of the gradient"),
        "norm": every("norm", ("round",), "norm of the weights"),
    }
    if settings.smallest:
        variables["smallest"] = every("smallest", ("round",), "smallest eigenvalue of the Hessian")
        variables["smallest_residual"] = every("smallest_residual", ("round",), "its residual")
    if settings.trace:
        variables["trace"] = every("trace", ("round",), "trace of the Hessian")
        variables["trace_error"] = every("trace_error", ("round",), "standard error of the trace")
    population = len(subject.examples(settings.split)[1])
    seen = {"examples": min(population, settings.limit or population), "population": population}
    result = {"spectrum": Table(variables, seen)}
    dense = with_density(subject, settings)
    if dense:
        every = partial(variable, found, [f"round {round}" for round in dense])
        result["density"] = Table(
            {
                "round": Variable(("round",), np.asarray(dense), "communication round"),
                "node": every("node", ("round", "probe", "step"), "quadrature node of the spectral density"),
                "weight": every("weight", ("round", "probe", "step"), "its weight; those of a probe sum to one"),
            },
            seen,
        )
    return result


STUDY = Study(
    name="curvature",
    about="largest Hessian eigenvalues of the global model over rounds, with residuals; density and trace if asked",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="003 T1 F5, 002 T8 F7, 004 F4",
)
