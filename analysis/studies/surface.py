"""Loss surfaces of several models that can be laid over each other: comparable axes, one range, one grid.

axes = "random"  filter-normalised Gaussians, one seed for all, each model's own norms (Li et al. 2018)
       "shared"  those of the first run's last round, the very same vectors for all
       "eigen"   unit eigenvectors of the two largest Hessian eigenvalues of each model, never rescaled
Running statistics of norm layers stay those of the centre. The range, if not given, is where a parabola of the
measured curvature has risen by `rise`: sqrt(2 rise / lambda). (FedGloSS, Figures 1, 2, 5, 6; FedSAM, Figure 1.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
import xarray as xr
from pydantic import Field
from torch import Tensor

from analysis.shared.grids import GridPiece, measure_rows
from analysis.shared.model_points import OWN, ModelPoint, check_architectures, tell_origin
from analysis.study import Datasets, Floats, Limit, Model, Rounds, Seed, Splits, Study, Tolerance, scalar, variable
from analysis.subjects import SPLITS, Subject
from landscape import Layout, directions, eigenpairs
from landscape.geometry.surface import coordinates, shared_extent
from landscape.runtime.device import to_float64
from training.settings import Positive, Whole, settings

Axes = Literal["random", "shared", "eigen"]


@settings
class Settings:
    """Which surfaces are measured, how wide and how finely."""

    rounds: Rounds = "last"
    model: Model = "final"
    axes: Axes = Field(default="random", description="random; shared: the same for all; eigen: two top eigenvectors")
    steps: int = Field(default=21, ge=2, description="points along each axis")
    extent: Positive | None = Field(default=None, description="axes from -extent to extent; none: from curvature, rise")
    rise: Positive = Field(default=1.0, description="rise of the loss at the edge, where there is no extent")
    splits: Splits = Field(default=SPLITS, description="data, each a surface")
    clients: Whole = Field(
        default=0, description="participants measured too, on their own and everyone's training data"
    )
    limit: Limit = None
    tol: Tolerance = 1e-3
    seed: Seed = 0


@dataclass(frozen=True)
class SurfacePiece(GridPiece):
    """The two directions of a model, or some rows of one of its surfaces.

    Rows come after the axes of their own model, followed by those of all global models.

    model: the number of the model in the answer.
    point: the model itself.
    """

    dims: ClassVar[tuple[str, ...]] = ("model", "split")
    model: int = 0
    point: ModelPoint = field(compare=False, kw_only=True)


def list_models(subjects: Sequence[Subject], settings: Settings) -> list[ModelPoint]:
    """The models whose surfaces are measured: global ones first."""
    found = [
        ModelPoint(run, round) for run, subject in enumerate(subjects) for round in subject.select(settings.rounds)
    ]
    kept = {one: sorted(subjects[one.run].local_points(one.round)) for one in found if settings.clients}
    local = (replace(one, client=client) for one, there in kept.items() for client in there[: settings.clients])
    return [*found, *local]


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[SurfacePiece]:
    """The axes of every model, then blocks of rows of its surfaces."""
    if settings.axes == "shared":
        check_architectures(subjects)
    products = 18 if settings.axes == "eigen" else 2
    planned: list[SurfacePiece] = []
    for number, point in enumerate(list_models(subjects, settings)):
        passes = 1.5 * products * subjects[point.run].count("train", limit=settings.limit)
        planned.append(SurfacePiece(point.round, point.client, model=number, point=point, passes=passes, vectors=20))
    axes, shared = tuple(planned), tuple(one for one in planned if one.client is None)
    for one in axes:
        for split in settings.splits if one.client is None else (OWN, "train"):
            cost = subjects[one.point.run].count(*one.point.find_data(split), settings.limit)
            planned += one.cut(split, settings.steps, cost, (one, *shared))
    return planned


def measure(subjects: Sequence[Subject], settings: Settings, piece: SurfacePiece, earlier: Datasets) -> xr.Dataset:
    """The axes of a model, or some rows of one of its surfaces."""
    if piece.split is None:
        return measure_axes(subjects, settings, piece.point)
    own, *shared = earlier
    subject, data = subjects[piece.point.run], piece.point.find_data(piece.split)
    objective = subject.objective(*data, settings.limit)
    theta = piece.point.load(subjects, settings.model)
    if settings.axes == "eigen":
        d1, d2 = torch.from_numpy(own["_directions"].values)
    else:
        d1, d2 = draw_axes(subjects, settings, objective.layout, theta)
    x, y = (coordinates(-reach, reach, settings.steps) for reach in find_reach(settings, shared))
    x = x[piece.first : piece.stop]
    found = measure_rows(objective, theta, d1, d2, x, y)
    found["examples"] = scalar(subject.count(*data, settings.limit), "number of examples")
    unit = "weight distance" if settings.axes == "eigen" else "1"
    axes = {
        "x": variable("x", x, "along the first direction", unit),
        "y": variable("y", y, "along the second direction", unit),
    }
    return xr.Dataset(found, axes)


def draw_axes(subjects: Sequence[Subject], settings: Settings, layout: Layout, theta: Tensor) -> tuple[Tensor, ...]:
    """Filter-normalised directions, zero on biases, norm layers and running statistics."""
    if settings.axes == "shared":
        theta = subjects[0].point(subjects[0].select(settings.rounds)[-1], settings.model)
    return directions.filter_normalized(layout, theta, seed=settings.seed)


def measure_axes(subjects: Sequence[Subject], settings: Settings, point: ModelPoint) -> xr.Dataset:
    """Both directions of a model, and the second derivative of everyone's training loss along them."""
    objective = subjects[point.run].objective("train", limit=settings.limit)
    theta = point.load(subjects, settings.model).to(objective.dtype)
    operator = objective.hessian(theta)
    residuals: Floats = np.full(2, np.nan)
    if settings.axes == "eigen":
        pairs = eigenpairs(operator, 2, tol=settings.tol, seed=settings.seed)
        still = objective.layout.mask("statistic")
        both = torch.stack([d.masked_fill(still, 0.0) for d in directions.eigenvectors(pairs)])
        second, residuals = pairs.values, pairs.residuals
    else:
        both = torch.stack(draw_axes(subjects, settings, objective.layout, theta))
        second = (to_float64(both) * to_float64(operator.matmat(both))).sum(dim=1).cpu().numpy()
    weights, lengths = theta[: objective.layout.parameter_count], to_float64(both).norm(dim=1).cpu().numpy()
    found = {
        "curvature": variable("axis", second, "second derivative of the training loss along the axis"),
        "residual": variable("axis", residuals, "||H v - lambda v|| of eigenvectors; NaN on random axes"),
        "length": variable("axis", lengths, "norm of the direction", "weight distance"),
        "cosine": scalar(directions.cosine(both[0], both[1]), "cosine between the directions"),
        "norm": scalar(directions.norm(weights), "norm of the weights", "weight distance"),
        **tell_origin("model", (), [point], subjects),
    }
    if settings.axes == "eigen":  # the others are computed in no time
        found["_directions"] = variable(("axis", "_parameter"), both.cpu().numpy(), "directions")
    return xr.Dataset(found, {"axis": variable("axis", ["x", "y"], "direction")})


def find_reach(settings: Settings, axes: Sequence[xr.Dataset]) -> tuple[float, float]:
    """How far x and y go, the same for all models.

    Never further than the norm of a global model, or of each filter on random axes: nothing would be left of it there.

    axes: what `measure_axes` found of the global models.
    """
    if settings.extent is not None:
        return settings.extent, settings.extent
    most = [float(one["norm"]) if settings.axes == "eigen" else 1.0 for one in axes]
    curvatures = np.stack([one["curvature"].values for one in axes])
    if settings.axes != "eigen":  # random axes are alike: one number for both
        curvatures, most = curvatures.reshape(-1, 1).repeat(2, axis=1), [*most, *most]
    across, along = shared_extent(curvatures, settings.rise, np.asarray(most))
    return float(f"{across:.2g}"), float(f"{along:.2g}")  # two digits: they are written on an axis


def derive(subjects: Sequence[Subject], settings: Settings, answer: xr.Dataset) -> xr.Dataset:
    """Make the origin of models coordinates, and say how the axes were made."""
    kinds = {"done": bool, "examples": np.int64}  # a global model has no data of its own
    whole = {name: answer[name].fillna(0).astype(kind, keep_attrs=True) for name, kind in kinds.items()}
    about = {
        "axes": settings.axes,
        "seed": settings.seed,
        "rise": settings.rise,
        "range_from": "curvature" if settings.extent is None else "extent",
        "batchnorm": "frozen",  # running statistics are those of the centre
    }
    answer["split"].attrs["long_name"] = "data: everyone's (train, test), or the client's own training data (own)"
    return answer.assign(whole).set_coords(["model_run", "model_round", "model_client"]).assign_attrs(about)


STUDY = Study(
    "surface", __doc__, Settings, pieces, measure, derive, together=True, papers="002 F1 F2 F5 F6, 003 F1, 004 F4"
)
