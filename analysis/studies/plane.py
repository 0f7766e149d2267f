"""The plane through three models, in weight distances: a = (0, 0), b = (||b - a||, 0), c above or below.

models = "clients"  three participants of a round, with the global model projected beside them
         "runs"     the global models of three runs (FedAvg, FedSAM, FedASAM)
         "rounds"   the first, the middle and the last of the selected rounds of each run
u and v are orthonormal (Garipov et al. 2018), so that the picture is not sheared. Distances are of weights; running
statistics of norm layers move linearly and are each model's own at its place ("interpolated"), or are re-estimated
on training data at every point ("recomputed"). (FedSAM/FedASAM, Figures 2, 12-14.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from analysis.shared.grids import grid_pieces, grid_variables, measure_rows, rows_of
from analysis.shared.places import FORWARD, Place, check_names, check_shapes, examples, labels, side_by_side, under
from analysis.store import Table, Variable
from analysis.study import Arrays, Checked, Piece, Study, limit_setting, model_setting, rounds_setting, setting
from analysis.subjects import SPLITS, Subject
from landscape import Layout, directions
from landscape.geometry.surface import coordinates
from landscape.layout import running_statistics
from landscape.results import Frame

THROUGH = ("clients", "runs", "rounds")
POLICIES = ("interpolated", "recomputed")


@dataclass(frozen=True)
class Settings(Checked):
    """Through which three models the plane lies, and how it is drawn."""

    models: str = setting(
        "clients", "through three participants, three runs, or three rounds of a run", choices=THROUGH
    )
    rounds: str = rounds_setting("last")
    clients: tuple[int, ...] = setting((), "which three participants; an empty list: the first three")
    model: str = model_setting()
    steps: int = setting(21, "points along each axis", least=2)
    margin: float = setting(0.2, "beyond the models on every side, as a share of the picture")
    splits: tuple[str, ...] = setting(SPLITS, "data, each a picture", choices=SPLITS)
    batchnorm: str = setting(
        "interpolated", "statistics of norm layers in between: interpolated too, or measured anew", choices=POLICIES
    )
    limit: int | None = limit_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("splits", self.splits, SPLITS)
        if not 0 <= self.margin < np.inf:
            raise ValueError(f"margin must be zero or a positive share of the picture, got {self.margin}")
        if self.clients and len(set(self.clients)) != 3:
            raise ValueError(f"clients must name three different ones, got {list(self.clients)}")


@dataclass(frozen=True)
class Spot:
    """A plane to draw: through clients of a round (which are looked up when needed), or through global models."""

    places: tuple[Place, ...]
    of_clients: bool = False


def spots(subjects: Sequence[Subject], settings: Settings) -> list[Spot]:
    """Every plane; opens no checkpoint."""
    if settings.models == "runs":
        if len(subjects) != 3:
            raise ValueError(f'models = "runs" draws a plane through three runs, got {len(subjects)}: name three')
        check_shapes(subjects)
        return [Spot(places) for places in side_by_side(subjects, settings.rounds)]
    found = []
    for run, subject in enumerate(subjects):
        rounds = subject.select(settings.rounds)
        if settings.models == "clients":
            found += [Spot((Place(run, round),), of_clients=True) for round in rounds]
        elif len(rounds) < 3:
            have = ", ".join(map(str, subject.rounds))
            raise ValueError(
                f'{labels(subjects)[run]}: models = "rounds" needs three rounds, got {len(rounds)}; write for example '
                f'rounds = "all". There are {have}'
            )
        else:
            chosen = (rounds[0], rounds[len(rounds) // 2], rounds[-1])
            found.append(Spot(tuple(Place(run, round) for round in chosen)))
    return found


def corners(subjects: Sequence[Subject], settings: Settings, spot: Spot) -> tuple[Place, ...]:
    """The three models that span a plane."""
    if not spot.of_clients:
        return spot.places
    (where,) = spot.places
    there = sorted(subjects[where.run].local_points(where.round))
    chosen = list(settings.clients or there[:3])
    missing = sorted({*chosen} - {*there})
    if missing or len(chosen) < 3:
        raise ValueError(
            f"{where.name(subjects)}: a plane needs three participants"
            + (f", and {', '.join(map(str, missing))} did not take part" if missing else "")
            + f"; there are {', '.join(map(str, there))}"
        )
    return tuple(replace(where, client=client) for client in chosen)


def frame(subjects: Sequence[Subject], settings: Settings, spot: Spot) -> Frame:
    """Base, u and v of a plane, with running statistics that pass through those of all three models."""
    places = corners(subjects, settings, spot)
    layout = Layout.of(subjects[places[0].run].model, statistics=settings.batchnorm == "interpolated")
    weights = layout.parameters[-1].stop
    points = [place.theta(subjects, settings.model) for place in places]
    try:
        found = directions.through_models(*(point[:weights] for point in points))
    except ValueError as error:
        names = ", ".join(f"{letter} = {one.name(subjects)}" for letter, one in zip("abc", places, strict=True))
        raise ValueError(f"{error} ({names})") from None
    if layout.size == weights:
        return found
    a, b, c = (point[weights : layout.size] for point in points)
    width, (along, height) = found.coordinates[1, 0], found.coordinates[2]
    across = (b - a) / width
    upwards = (c - a - along * across) / height
    return Frame(points[0], torch.cat([found.u, across]), torch.cat([found.v, upwards]), found.coordinates)


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    planned = []
    for number, spot in enumerate(spots(subjects, settings)):
        frame(subjects, settings, spot)  # three equal models are refused before any work is done
        place = spot.places[0]
        for split in settings.splits:
            count = examples(subjects[place.run], split, settings.limit)
            if policy(subjects, settings, spot) == "recomputed":
                count += examples(subjects[place.run], "train", settings.limit)
            planned.append(Piece(f"models of plane {number}, {split}", 4 * count * FORWARD, 10, place.round))
            planned += grid_pieces(f"plane {number}, {split}", count, settings.steps, place.round)
    return planned


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    lone = piece.key.startswith("models of ")
    name, rows = (piece.key.removeprefix("models of "), slice(0)) if lone else rows_of(piece.key)
    title, split = name.split(", ")
    spot = spots(subjects, settings)[int(title.removeprefix("plane "))]
    objective = under(subjects[spot.places[0].run], policy(subjects, settings, spot), split, settings.limit)
    plane = frame(subjects, settings, spot)
    if not lone:
        x, y = axes(plane, settings)
        size = objective.size
        return measure_rows(objective, plane.base[:size], plane.u[:size], plane.v[:size], x[rows], y)
    shown = [*corners(subjects, settings, spot), *(spot.places if spot.of_clients else ())]
    thetas = [place.theta(subjects, settings.model).to(objective.dtype) for place in shown]
    weights = objective.layout.parameters[-1].stop
    positions, off = directions.project(
        torch.stack([theta[:weights] for theta in thetas]), plane.base[:weights], plane.u[:weights], plane.v[:weights]
    )
    positions[:3], off[:3] = plane.coordinates, 0.0  # exact by construction
    own = [objective.evaluate(theta[: objective.size]) for theta in thetas]
    return {
        "model_x": positions[:, 0],
        "model_y": positions[:, 1],
        "distance": off,
        "model_loss": np.array([one.loss for one in own]),
        "model_error": np.array([np.nan if one.error is None else one.error for one in own]),
        "label": np.array([place.name(subjects) for place in shown]),
    }


def policy(subjects: Sequence[Subject], settings: Settings, spot: Spot) -> str:
    """How norm layers are treated; what the subject says where none keeps statistics."""
    subject = subjects[spot.places[0].run]
    return settings.batchnorm if running_statistics(subject.model) else subject.policy


def axes(plane: Frame, settings: Settings) -> list[NDArray[np.float64]]:
    """x and y, with margins around the three models."""
    return [coordinates(*side, settings.steps) for side in directions.extent(plane.coordinates, settings.margin)]


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    unit, result = "weight distance", {}
    for number, spot in enumerate(spots(subjects, settings)):
        x, y = axes(frame(subjects, settings, spot), settings)
        names = [f"plane {number}, {split}" for split in settings.splits]
        models = [found[f"models of {name}"] for name in names]
        by_model = ("split", "model")
        counts = [examples(subjects[spot.places[0].run], split, settings.limit) for split in settings.splits]
        grid = {
            field: Variable(one.dims[1:], one.values[0], one.long_name)
            for field, one in grid_variables(found, [names], ("row", "split", "x", "y")).items()
        }
        variables = {
            "split": Variable(("split",), np.asarray(settings.splits), "data of everyone, of the first model's run"),
            "x": Variable(("x",), x, "from the first model towards the second", unit),
            "y": Variable(("y",), y, "at right angles to it, towards the third", unit),
            **grid,
            "examples": Variable(("split",), np.asarray(counts), "number of examples"),
            "label": Variable(("model",), models[0]["label"], "model"),
            "model_x": Variable(("model",), models[0]["model_x"], "its place along x", unit),
            "model_y": Variable(("model",), models[0]["model_y"], "its place along y", unit),
            "distance": Variable(("model",), models[0]["distance"], "its distance from the plane", unit),
            "model_loss": Variable(by_model, np.stack([one["model_loss"] for one in models]), "its own loss"),
            "model_error": Variable(by_model, np.stack([one["model_error"] for one in models]), "its own error"),
        }
        about = {"models": settings.models, "round": spot.places[0].round, "run": labels(subjects)[spot.places[0].run]}
        result[f"plane_{number}"] = Table(variables, {**about, "batchnorm": policy(subjects, settings, spot)})
    return result


STUDY = Study(
    name="plane",
    about="loss and error over the plane through three models: clients of a round, runs, or rounds",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    together=True,
    papers="003 F2 F12-F14",
)
