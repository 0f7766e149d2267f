"""How sharp the global model is, round by round: largest eigenvalues, smallest, density and trace of the Hessian.

Each round warm-starts from the eigenvectors of the round before: they hardly turn between checkpoints.

`published` adds what FedSAM (appendix C.4) and FedGloSS (appendix D.3) report: power iteration with at most 20 steps
for each eigenvalue, with deflation. Both call it stochastic and leave open how many examples a step sees, when it stops
early and where it starts. Here every step sees all examples of the question, as in FedGloSS's published code; it stops
early at a residual of 1e-3, and starts from a normal random vector. `landscape.power_iteration` can also do exactly
what that code does (as_published) and use mini-batches. The eigenvalues found are those of largest magnitude, not
always the largest, and often not converged: their residuals say by how much.
"""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from pydantic import Field

from analysis.study import Datasets, Limit, Model, Piece, Rounds, Seed, Split, Study, Tolerance, Top, scalar, variable
from analysis.subjects import Subject
from landscape import Operator, eigenpairs, power_iteration, spectral_density, trace
from landscape.geometry.directions import norm
from landscape.objectives.subsample_errors import quotient_errors
from training.settings import Whole, settings

PUBLISHED_STEPS = 20  # of power iteration for each eigenvalue: FedGloSS, appendix D.3; FedSAM, appendix C.4
DENSITY_STEPS = 80  # Lanczos steps of each probe of the density, as Ghorbani et al. 2019 take


@settings
class Settings:
    """What is measured of the Hessian, where, and how exactly."""

    rounds: Rounds = "all"
    model: Model = "final"
    split: Split = Field(default="train", description="data of the loss")
    top: Top = 5
    tol: Tolerance = 1e-3
    published: bool = Field(
        default=False, description="the papers' number too: at most 20 power iterations for each eigenvalue"
    )
    smallest: bool = Field(default=False, description="the smallest eigenvalue too")
    density: Whole = Field(default=0, description="probes of the spectral density, 10 or so; 0: no density")
    density_rounds: Rounds = Field(default="last", description="rounds whose density is taken, which takes long")
    trace: Whole = Field(default=0, description="probes of the trace, 100 or so; 0: no trace")
    limit: Limit = None
    warm: bool = Field(default=True, description="start each round from the eigenvectors of the round before")
    seed: Seed = 0


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece for each round; with a warm start each comes after the one before."""
    everyone, count = subject.count(settings.split), subject.count(settings.split, limit=settings.limit)
    # a product costs about 1.5 gradients; 10 + 4 k products find k pairs (measured on LeNet and ResNet), and k more
    # tell their standard errors on a subset
    products = 10 + 4 * settings.top + settings.top * (count < everyone) + settings.trace
    products += PUBLISHED_STEPS * settings.top * settings.published
    more, dense = DENSITY_STEPS * settings.density, list_density_rounds(subject, settings)
    planned: list[Piece] = []
    for round in subject.select(settings.rounds):
        passes = 1.5 * (products + more * (round in dense)) * count
        after = tuple(planned[-1:]) if settings.warm else ()
        planned.append(Piece(round, passes=passes, vectors=12 + 4 * settings.top, after=after))
    return planned


def list_density_rounds(subject: Subject, settings: Settings) -> list[int]:
    """The rounds whose density is taken; "last" is the last of those that are measured."""
    rounds = subject.select(settings.rounds)
    if not settings.density:
        return []
    if settings.density_rounds == "last":
        return rounds[-1:]
    return [round for round in subject.select(settings.density_rounds) if round in rounds]


def measure(subject: Subject, settings: Settings, piece: Piece, earlier: Datasets) -> xr.Dataset:
    """The spectrum of one round."""
    objective = subject.objective(settings.split, limit=settings.limit)
    theta = subject.point(piece.round, settings.model).to(objective.dtype)
    operator = objective.hessian(theta)
    start = torch.from_numpy(earlier[0]["_vectors"].values) if earlier else None
    pairs = eigenpairs(operator, settings.top, tol=settings.tol, start=start, seed=settings.seed)
    loss, gradient = objective.loss_and_gradient(theta)
    errors, data = quotient_errors(objective, theta, pairs.vectors), f"{settings.split} loss"
    found = {
        "eigenvalue": variable("rank", pairs.values, f"eigenvalue of the Hessian, {data}"),
        "eigenvalue_standard_error": variable(
            "rank", errors, "its standard error, as an estimate of that on all examples; 0 where all were seen"
        ),
        "residual": variable("rank", pairs.residuals, "||H v - lambda v||: some eigenvalue is as near as this"),
        "converged": variable("rank", pairs.converged, "whether the residual is below tol |lambda|"),
        "verified": variable((), pairs.verified, "whether a missed larger eigenvalue is improbable (1 in 1000)"),
        "products": scalar(pairs.products, "Hessian products spent"),
        "loss": scalar(loss, data),
        "gradient_norm": scalar(norm(gradient), "norm of the gradient"),
        "norm": scalar(norm(theta[: gradient.numel()]), "norm of the weights"),
        "_vectors": variable(("_pair", "_parameter"), pairs.vectors.cpu().numpy(), "eigenvectors"),
    }
    found |= _measure_more(operator, settings, density=piece.round in list_density_rounds(subject, settings))
    return xr.Dataset(
        found, {"rank": np.arange(1, settings.top + 1)}, subject.count_seen(settings.split, settings.limit)
    )


def _measure_more(operator: Operator, settings: Settings, *, density: bool) -> dict[str, xr.Variable]:
    """The published protocol, the smallest eigenvalue, the density and the trace, where they are asked for."""
    found = {}
    if settings.published:
        power = power_iteration(operator, settings.top, max_iter=PUBLISHED_STEPS, seed=settings.seed)
        found["published_eigenvalue"] = variable("rank", power.values, "eigenvalue by at most 20 power iterations")
        found["published_residual"] = variable("rank", power.residuals, "its residual ||H v - lambda v||")
        found["published_iterations"] = variable("rank", power.iterations, "power iterations taken for it")
    if settings.smallest:
        low = eigenpairs(operator, 1, tol=settings.tol, which="smallest", seed=settings.seed)
        found["smallest"] = scalar(low.values[0], "smallest eigenvalue of the Hessian")
        found["smallest_residual"] = scalar(low.residuals[0], "its residual")
    if density:
        spectrum = spectral_density(operator, probes=settings.density, steps=DENSITY_STEPS, seed=settings.seed)
        found["node"] = variable(("probe", "step"), spectrum.nodes, "quadrature node of the spectral density")
        found["weight"] = variable(("probe", "step"), spectrum.weights, "its weight; those of a probe sum to one")
    if settings.trace:
        whole_trace = trace(operator, probes=settings.trace, seed=settings.seed)
        found["trace"] = scalar(whole_trace.value, "trace of the Hessian")
        found["trace_error"] = scalar(whole_trace.standard_error, "standard error of the trace")
    return found


STUDY = Study("curvature", __doc__, Settings, pieces, measure, papers="003 T1 F5, 002 T8 F7, 004 F4")
