"""Loss and error over the plane through three models: clients of a round, runs, or rounds.

Coordinates are weight distances: a = (0, 0), b = (||b - a||, 0), c above or below.

models = "clients"  three participants of a round, with the global model projected beside them; with `own` also the
                    loss on the first one's own data, over the same plane
         "runs"     the global models of three runs (FedAvg, FedSAM, FedASAM)
         "rounds"   the first, the middle and the last of the selected rounds of each run
u and v are orthonormal (Garipov et al. 2018), so that the picture is not sheared. Distances are of weights; running
statistics of norm layers move linearly and are each model's own at its place ("interpolated"), or are re-estimated
on training data at every point ("recomputed"). (FedSAM/FedASAM, Figures 2, 12-14.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
import xarray as xr
from pydantic import AfterValidator, Field, model_validator

from analysis.shared.grids import FORWARD, GridPiece, measure_rows
from analysis.shared.model_points import OWN, ModelPoint, check_architectures, match_rounds, name_runs, tell_origin
from analysis.study import Datasets, Floats, Limit, Model, Piece, Rounds, Splits, Study, variable
from analysis.subjects import SPLITS, Subject
from landscape import Layout, directions
from landscape.geometry.surface import coordinates
from landscape.results import Frame
from training.settings import NonNegative, Several, settings

Through = Literal["clients", "runs", "rounds"]
Policy = Literal["interpolated", "recomputed"]
CORNERS = ("a", "b", "c", "global")  # models of a plane; the last one is beside planes through clients
UNIT = "weight distance"
GRID = ("x_index", "y_index")
Corners = tuple[ModelPoint, ...]  # a, b and c, and the global model beside participants


def _check_three(clients: tuple[int, ...]) -> tuple[int, ...]:
    if (clients and len(clients) != 3) or len(set(clients)) < len(clients):
        raise ValueError(f"clients must name three different ones, got {list(clients)}")
    return clients


Three = Annotated[Several[int], AfterValidator(_check_three)]


@settings
class Settings:
    """Through which three models the plane lies, and how it is measured."""

    models: Through = Field(default="clients", description="three participants, three runs, or three rounds of a run")
    rounds: Rounds = "last"
    clients: Three = Field(default=(), description="which three participants; an empty list: the first three")
    model: Model = "final"
    steps: int = Field(default=21, ge=2, description="points along each axis")
    margin: NonNegative = Field(default=0.2, description="beyond the models on every side, as a share of the picture")
    splits: Splits = Field(default=SPLITS, description="data, each a picture")
    own: bool = Field(default=False, description="the first participant's own training data too")
    batchnorm: Policy = Field(
        default="interpolated", description="statistics of norm layers in between: interpolated too, or measured anew"
    )
    limit: Limit = None

    @model_validator(mode="after")
    def _check_own(self) -> Self:
        if self.own and self.models != "clients":
            raise ValueError(
                f'own needs models = "clients", got "{self.models}": other models have no data of their own'
            )
        return self

    @property
    def pictures(self) -> tuple[str, ...]:
        """The data, by split."""
        return (*self.splits, OWN) if self.own else self.splits


@dataclass(frozen=True)
class PlanePiece(GridPiece):
    """Some rows of a plane, or its models: where they lie, and their own losses.

    plane: the number of the plane in the answer.
    corners: the models.
    """

    dims: ClassVar[tuple[str, ...]] = ("plane", "split")
    plane: int = 0
    corners: Corners = field(compare=False, kw_only=True)


def list_planes(subjects: Sequence[Subject], settings: Settings) -> list[Corners]:
    """The models of every plane."""
    if settings.models == "runs":
        if len(subjects) != 3:
            raise ValueError(f'models = "runs" draws a plane through three runs, got {len(subjects)}: name three')
        check_architectures(subjects)
        return match_rounds(subjects, settings.rounds)
    found: list[Corners] = []
    for run, subject in enumerate(subjects):
        rounds = subject.select(settings.rounds)
        if settings.models == "clients":
            found += [add_participants(subjects, settings, ModelPoint(run, round)) for round in rounds]
        elif len(rounds) < 3:
            have = ", ".join(map(str, subject.rounds))
            raise ValueError(
                f'{name_runs(subjects)[run]}: models = "rounds" needs three rounds, got {len(rounds)}; write for '
                f'example rounds = "all". There are {have}'
            )
        else:
            chosen = (rounds[0], rounds[len(rounds) // 2], rounds[-1])
            found.append(tuple(ModelPoint(run, round) for round in chosen))
    return found


def add_participants(subjects: Sequence[Subject], settings: Settings, whole: ModelPoint) -> Corners:
    """Three participants of the round of a global model, and this one behind them."""
    there = sorted(subjects[whole.run].local_points(whole.round))
    chosen = settings.clients or there[:3]
    missing = sorted({*chosen} - {*there})
    if missing or len(chosen) < 3:
        raise ValueError(
            f"{whole.describe(subjects)}: a plane needs three participants"
            + (f", and {', '.join(map(str, missing))} did not take part" if missing else "")
            + f"; there are {', '.join(map(str, there))}"
        )
    return (*(replace(whole, client=client) for client in chosen), whole)


def find_frame(subjects: Sequence[Subject], settings: Settings, corners: Corners) -> Frame:
    """Base, u and v of a plane, with running statistics that pass through those of all three models."""
    chosen = corners[:3]
    layout = Layout.of(subjects[corners[0].run].model, statistics=settings.batchnorm == "interpolated")
    a, b, c = (one.load(subjects, settings.model)[: layout.size] for one in chosen)
    try:
        return directions.through_models(a, b, c, weights=layout.parameter_count)
    except ValueError as error:
        names = ", ".join(f"{letter} = {one.describe(subjects)}" for letter, one in zip("abc", chosen, strict=True))
        raise ValueError(f"{error} ({names})") from None


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    """The models of every plane, and blocks of its rows."""
    planned: list[Piece] = []
    for number, corners in enumerate(list_planes(subjects, settings)):
        find_frame(subjects, settings, corners)  # three equal models are refused before any work is done
        subject = subjects[corners[0].run].treat_norms(settings.batchnorm)
        data = {split: corners[0].find_data(split) for split in settings.pictures}
        costs = {split: subject.count_evaluated(*whose, settings.limit) for split, whose in data.items()}
        passes = 4 * sum(costs.values()) * FORWARD
        models = PlanePiece(corners[0].round, plane=number, corners=corners, passes=passes, vectors=10)
        planned.append(models)
        for split, cost in costs.items():
            planned += models.cut(split, settings.steps, cost)
    return planned


def measure(subjects: Sequence[Subject], settings: Settings, piece: PlanePiece, earlier: Datasets) -> xr.Dataset:
    """The models of a plane, or some rows of it."""
    plane, first = find_frame(subjects, settings, piece.corners), piece.corners[0]
    if piece.split is None:
        return measure_models(subjects, settings, piece.corners, plane)
    subject = subjects[first.run].treat_norms(settings.batchnorm)
    objective = subject.objective(*first.find_data(piece.split), settings.limit)
    x, y = find_axes(plane, settings)
    base, u, v = (one[: objective.size] for one in (plane.base, plane.u, plane.v))
    rows = np.arange(len(x))[piece.first : piece.stop]
    found = measure_rows(objective, base, u, v, x[rows], y, GRID)
    return xr.Dataset(found, {GRID[0]: rows, GRID[1]: np.arange(len(y))})


def measure_models(subjects: Sequence[Subject], settings: Settings, corners: Corners, plane: Frame) -> xr.Dataset:
    """Where the models of a plane lie in it, and their own losses."""
    subject = subjects[corners[0].run].treat_norms(settings.batchnorm)
    data = [corners[0].find_data(split) for split in settings.pictures]
    objectives = [subject.objective(*whose, settings.limit) for whose in data]
    thetas = [one.load(subjects, settings.model).to(objectives[0].dtype) for one in corners]
    weights = objectives[0].layout.parameter_count
    axes = (one[:weights] for one in (plane.base, plane.u, plane.v))
    positions, off = directions.project(torch.stack([theta[:weights] for theta in thetas]), *axes)
    positions[:3], off[:3] = plane.coordinates, 0.0  # exact by construction
    own = [[objective.evaluate(theta[: objective.size]) for theta in thetas] for objective in objectives]
    losses, errors = (
        np.asarray([[getattr(one, name) for one in some] for some in own], dtype=np.float64)  # None becomes NaN
        for name in ("loss", "error")
    )
    x, y = find_axes(plane, settings)
    found = {
        "x": variable("x_index", x, "from the first model towards the second", UNIT),
        "y": variable("y_index", y, "at right angles to it, towards the third", UNIT),
        "examples": variable("split", [subject.count(*whose, settings.limit) for whose in data], "number of examples"),
        **tell_origin("model", "model", corners, subjects),
        "model_x": variable("model", positions[:, 0], "its place along x", UNIT),
        "model_y": variable("model", positions[:, 1], "its place along y", UNIT),
        "distance": variable("model", off, "its distance from the plane", UNIT),
        "model_loss": variable(("split", "model"), losses, "its own loss"),
        "model_error": variable(("split", "model"), errors, "its own error"),
        "batchnorm": variable((), subject.policy, "treatment of norm layers"),
    }
    return xr.Dataset(found, {"split": list(settings.pictures), "model": list(CORNERS[: len(corners)])})


def find_axes(plane: Frame, settings: Settings) -> list[Floats]:
    """x and y, with margins around the three models."""
    return [coordinates(*side, settings.steps) for side in directions.extent(plane.coordinates, settings.margin)]


def derive(subjects: Sequence[Subject], settings: Settings, answer: xr.Dataset) -> xr.Dataset:
    """Make coordinates of where the points and the models of each plane are."""
    names = {
        "split": "data of everyone, of the first model's run; own: of the first participant",
        "x_index": "point along x",
        "y_index": "point along y",
        "model": "model: a, b and c span the plane, the global model is projected",
    }
    for dim, about in names.items():
        answer[dim].attrs["long_name"] = about
    origin = ("x", "y", "batchnorm", "model_run", "model_round", "model_client", "model_x", "model_y")
    return answer.set_coords(origin).assign_attrs(models=settings.models)


STUDY = Study("plane", __doc__, Settings, pieces, measure, derive, together=True, papers="003 F2 F12-F14")
