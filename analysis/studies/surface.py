"""Loss surfaces of several models that can be laid over each other: comparable axes, one range, one grid.

axes = "random"  filter-normalised Gaussians, one seed for all, each model's own norms (Li et al. 2018)
       "shared"  those of the first run's last round, the very same vectors for all
       "eigen"   unit eigenvectors of the two largest Hessian eigenvalues of each model, never rescaled
Running statistics of norm layers stay those of the centre. The range, if not given, is where a parabola of the
measured curvature has risen by `rise`: sqrt(2 rise / lambda). (FedGloSS, Figures 1, 2, 5, 6; FedSAM, Figure 1.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from analysis.shared.grids import grid_pieces, grid_variables, measure_rows, rows_of
from analysis.shared.places import Place, check_names, check_shapes, examples, labels
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
from landscape import Layout, Objective, curvature_extent, directions, eigenpairs
from landscape.geometry.surface import coordinates

AXES = ("random", "shared", "eigen")
VIEWS = ("own", "everyone")  # the training data that a participant's model is seen from
SHARPEST = 10  # times the wanted rise: what the sharpest model may show when the flattest sets the range


@dataclass(frozen=True)
class Settings(Checked):
    """Which surfaces are drawn, how wide and how finely."""

    rounds: str = rounds_setting("last")
    model: str = model_setting()
    axes: str = setting(
        "random", "random directions of each model's scale; the same for all; or the two top eigenvectors", choices=AXES
    )
    steps: int = setting(21, "points along each axis", least=2)
    extent: float | None = setting(
        None, "both axes reach from -extent to extent", positive=True, absent="from the curvature and `rise`"
    )
    rise: float = setting(1.0, "how much the loss shall rise at the edge, where the extent is not given", positive=True)
    splits: tuple[str, ...] = setting(SPLITS, "data, each a surface", choices=SPLITS)
    clients: int = setting(
        0, "participants whose own models are drawn too, on their own data and on everyone's", least=0
    )
    limit: int | None = limit_setting()
    tol: float = setting(1e-3, "of the eigenvectors", positive=True)
    seed: int = seed_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("splits", self.splits, SPLITS)


def global_models(subjects: Sequence[Subject], settings: Settings) -> list[Place]:
    return [Place(run, round) for run, subject in enumerate(subjects) for round in subject.select(settings.rounds)]


def local_models(subjects: Sequence[Subject], settings: Settings) -> list[Place]:
    if not settings.clients:
        return []
    return [
        Place(run, round, client)
        for run, round in ((place.run, place.round) for place in global_models(subjects, settings))
        for client in sorted(subjects[run].local_points(round))[: settings.clients]
    ]


def views(place: Place, settings: Settings) -> Sequence[str]:
    """The data that a model is seen from."""
    return settings.splits if place.client is None else VIEWS


def data_of(place: Place, view: str) -> tuple[str, int | None]:
    """Split and client of a view."""
    return ("train" if view in VIEWS else view), (place.client if view == "own" else None)


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    if settings.axes == "shared":
        check_shapes(subjects)
    places = [*global_models(subjects, settings), *local_models(subjects, settings)]
    products = 18 if settings.axes == "eigen" else 2
    planned, grids = [], []
    for place in places:
        subject, name = subjects[place.run], place.name(subjects)
        client = -1 if place.client is None else place.client
        count = examples(subject, "train", settings.limit)
        planned.append(Piece(f"axes of {name}", 1.5 * products * count, 20, place.round, client))
        for view in views(place, settings):
            split, whose = data_of(place, view)
            count = examples(subject, split, settings.limit, whose)
            grids += grid_pieces(f"{name}, {view}", count, settings.steps, place.round, client)
    return [*planned, *grids]  # all axes first: the range depends on them


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    client = piece.client if piece.client >= 0 else None
    places = {place.name(subjects): place for place in (Place(n, piece.round, client) for n in range(len(subjects)))}
    if piece.key.startswith("axes of "):
        return measure_axes(subjects, settings, places[piece.key.removeprefix("axes of ")])
    title, rows = rows_of(piece.key)
    name, _, view = title.rpartition(", ")
    place = places[name]
    split, whose = data_of(place, view)
    objective = subjects[place.run].objective(split, whose, settings.limit)
    theta = place.theta(subjects, settings.model)
    if settings.axes == "eigen":
        d1, d2 = torch.from_numpy(found[f"axes of {name}"]["_directions"])
    else:
        d1, d2 = random_axes(subjects, settings, objective.layout, theta)
    x, y = (coordinates(-reach, reach, settings.steps) for reach in reaches(subjects, settings, found))
    return measure_rows(objective, theta, d1, d2, x[rows], y)


def random_axes(subjects: Sequence[Subject], settings: Settings, layout: Layout, theta: Tensor) -> tuple[Tensor, ...]:
    """Filter-normalised directions, zero on biases, norm layers and running statistics."""
    if settings.axes == "shared":
        theta = subjects[0].point(subjects[0].select(settings.rounds)[-1], settings.model)
    return directions.filter_normalized(layout, theta, seed=settings.seed)


def measure_axes(subjects: Sequence[Subject], settings: Settings, place: Place) -> Arrays:
    """Both directions of a model, and the second derivative of everyone's training loss along them."""
    objective: Objective = subjects[place.run].objective("train", limit=settings.limit)
    theta = place.theta(subjects, settings.model).to(objective.dtype)
    operator = objective.hessian(theta)
    if settings.axes == "eigen":
        pairs = eigenpairs(operator, 2, tol=settings.tol, seed=settings.seed)
        still = objective.layout.mask("statistic")
        both = torch.stack([d.masked_fill(still, 0.0) for d in directions.eigenvectors(pairs)])
        arrays: Arrays = {"curvature": pairs.values, "residual": pairs.residuals, "_directions": both.cpu().numpy()}
    else:
        both = torch.stack(random_axes(subjects, settings, objective.layout, theta))
        second = (both.double() * operator.matmat(both).double()).sum(dim=1)
        arrays = {"curvature": second.cpu().numpy(), "residual": np.full(2, np.nan)}
    weights = theta[: objective.layout.parameters[-1].stop]
    return arrays | {
        "length": both.double().norm(dim=1).cpu().numpy(),
        "cosine": np.asarray(directions.cosine(both[0], both[1])),
        "norm": np.asarray(float(weights.double().norm())),
    }


def reaches(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> tuple[float, float]:
    """How far x and y go, the same for all models.

    As far as the flattest global model needs, but not so far that the sharpest rises more than ten times as much, and
    never by more than the norm of the model, or of each filter on random axes: nothing would be left of it there.
    """
    if settings.extent is not None:
        return settings.extent, settings.extent
    names = [place.name(subjects) for place in global_models(subjects, settings)]
    axes = [found[f"axes of {name}"] for name in names]
    most = [float(one["norm"]) if settings.axes == "eigen" else 1.0 for one in axes]
    wanted = np.array(
        [[_reach(float(c), settings.rise, top) for c in one["curvature"]] for one, top in zip(axes, most, strict=True)]
    )
    if settings.axes != "eigen":  # random axes are alike: one number for both
        wanted = wanted.reshape(-1, 1).repeat(2, axis=1)
    both = np.minimum(wanted.max(axis=0), math.sqrt(SHARPEST) * wanted.min(axis=0))
    across, along = (float(f"{reach:.2g}") for reach in both)  # two digits: they are written on an axis
    return across, along


def _reach(curvature: float, rise: float, most: float) -> float:
    flat = curvature == 0 or not math.isfinite(curvature)
    return most if flat else min(curvature_extent(curvature, rise), most)


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    reach = reaches(subjects, settings, found)
    result = {"global_models": _table(subjects, settings, found, global_models(subjects, settings), reach)}
    if settings.clients:
        result["local_models"] = _table(subjects, settings, found, local_models(subjects, settings), reach)
    return result


def _table(
    subjects: Sequence[Subject],
    settings: Settings,
    found: Mapping[str, Arrays],
    places: Sequence[Place],
    reach: tuple[float, float],
) -> Table:
    """Surfaces of global models over splits, or of participants' models over VIEWS."""
    names, runs = [place.name(subjects) for place in places], labels(subjects)
    seen = views(places[0], settings)
    local = seen is VIEWS
    dim, about = ("data", "training data: own or everyone's") if local else ("split", "data of everyone")
    unit = "weight distance" if settings.axes == "eigen" else "1"
    each = partial(variable, found, [f"axes of {name}" for name in names])
    counts = [
        [
            examples(subjects[place.run], split, settings.limit, whose)
            for split, whose in map(partial(data_of, place), seen)
        ]
        for place in places
    ]
    variables = {
        "run": Variable(("row",), np.asarray([runs[place.run] for place in places]), "run"),
        "round_of": Variable(("row",), np.asarray([place.round for place in places]), "communication round"),
        dim: Variable((dim,), np.asarray(seen), about),
        "axis": Variable(("axis",), np.asarray(["x", "y"]), "direction"),
        "x": Variable(("x",), coordinates(-reach[0], reach[0], settings.steps), "along the first direction", unit),
        "y": Variable(("y",), coordinates(-reach[1], reach[1], settings.steps), "along the second direction", unit),
        **grid_variables(found, [[f"{name}, {view}" for view in seen] for name in names], ("row", dim, "x", "y")),
        "examples": Variable(("row", dim), np.asarray(counts), "number of examples"),
        "curvature": each("curvature", ("row", "axis"), "second derivative of the training loss along the axis"),
        "residual": each("residual", ("row", "axis"), "||H v - lambda v|| of eigenvectors; NaN on random axes"),
        "length": each("length", ("row", "axis"), "norm of the direction", "weight distance"),
        "cosine": each("cosine", ("row",), "cosine between the directions"),
        "norm": each("norm", ("row",), "norm of the weights", "weight distance"),
    }
    if local:
        variables["client"] = Variable(("row",), np.asarray([place.client for place in places]), "participant")
    attributes = {
        "axes": settings.axes,
        "seed": settings.seed,
        "rise": settings.rise,
        "range_from": "curvature" if settings.extent is None else "extent",
        "batchnorm": "frozen",  # running statistics are those of the centre
    }
    return Table(variables, attributes)


STUDY = Study(
    name="surface",
    about="loss and error of several models over two directions each, in one range: random, shared or eigenvectors",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    together=True,
    papers="002 F1 F2 F5 F6, 003 F1, 004 F4",
)
