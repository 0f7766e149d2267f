"""Straight lines between models: is there a barrier, or do they lie in one basin?

w(gamma) = (1 - gamma) a + gamma b for gamma in [-1, 2] (FedGloSS, Figure 9), with the three barriers in use. Clients
start from one model and so do runs of one seed; no permutation of neurons is matched.

Running statistics of norm layers, by `batchnorm` (each line is measured under every one that is named):
  interpolated  move with the weights, so that both ends are the stored models
  recomputed    re-estimated on training data at every point, for the test loss too
  frozen        stay those of a: for comparison, b is then not itself
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
import xarray as xr
from pydantic import Field, model_validator

from analysis.shared.grids import FORWARD, describe_points
from analysis.shared.model_points import ModelPoint, check_architectures, load_participants, match_rounds, tell_origin
from analysis.study import Datasets, Limit, Model, Piece, Rounds, Splits, Study, require_names, scalar, variable
from analysis.subjects import SPLITS, Subject
from landscape import barrier
from landscape.geometry.directions import distance
from landscape.geometry.paths import list_beyond
from landscape.geometry.surface import vector
from landscape.layout import running_statistics
from landscape.results import Barrier
from training.settings import Count, Names, settings

KINDS = ("run-run", "client-client", "client-global", "round-round")
POLICIES = ("interpolated", "recomputed", "frozen")
Pairs = Annotated[Names, require_names(KINDS, empty=True)]
Policies = Annotated[Names, require_names(POLICIES)]
DEFINITIONS = ("linear", "mean", "max")
REFINE = 8  # evaluations around each of the two highest points: a maximum over a grid is a lower bound


@settings
class Settings:
    """Between which models, on which data."""

    rounds: Rounds = "last"
    pairs: Pairs = Field(default=(), description="kinds of pairs; an empty list: all that these runs have")
    model: Model = "final"
    steps: int = Field(default=21, ge=3, description="points from one model to the other; the same spacing beyond")
    low: float = Field(default=-1.0, description="where the line begins; the first model is at 0")
    high: float = Field(default=2.0, description="where it ends; the second model is at 1")
    clients: Count = Field(default=3, description="most participants of a round in pairs")
    splits: Splits = Field(default=SPLITS, description="data, each a line")
    batchnorm: Policies = Field(
        default=POLICIES,
        description="statistics of norm layers in between: interpolated, measured anew, those of the first",
    )
    limit: Limit = None

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        list_beyond(self.low, self.high, self.steps)  # refuses other ends
        return self


@dataclass(frozen=True)
class Pair:
    """Two models with a line between them.

    kind: one of KINDS.
    start, end: the models at gamma = 0 and gamma = 1.
    """

    kind: str
    start: ModelPoint
    end: ModelPoint


@dataclass(frozen=True)
class LinePiece(Piece):
    """One line.

    pair: the number of the pair in the answer.
    batchnorm: the treatment of norm layers.
    split: the data.
    ends: the pair itself.
    """

    dims: ClassVar[tuple[str, ...]] = ("pair", "batchnorm", "split")
    pair: int = 0
    batchnorm: str = "frozen"
    split: str = "train"
    ends: Pair = field(compare=False, kw_only=True)


def add_previous(subject: Subject, rounds: Sequence[int]) -> list[int]:
    """These rounds; a single one together with the checkpoint before it, so that there is a pair."""
    before = [round for round in subject.rounds if round < rounds[0]]
    return [*before[-1:], *rounds] if len(rounds) == 1 else list(rounds)


def list_pairs(subjects: Sequence[Subject], settings: Settings) -> Iterator[Pair]:
    """Every pair once."""
    kinds = settings.pairs or KINDS
    if "run-run" in kinds and len(subjects) > 1:
        check_architectures(subjects)
        for points in match_rounds(subjects, settings.rounds):
            yield from (Pair("run-run", *two) for two in combinations(points, 2))
    for run, subject in enumerate(subjects):
        rounds = subject.select(settings.rounds)
        if "round-round" in kinds:
            for a, b in pairwise(add_previous(subject, rounds)):
                yield Pair("round-round", ModelPoint(run, a), ModelPoint(run, b))
        if {"client-client", "client-global"} & {*kinds}:
            for round in rounds:
                yield from _list_client_pairs(subject, settings, ModelPoint(run, round))


def _list_client_pairs(subject: Subject, settings: Settings, whole: ModelPoint) -> Iterator[Pair]:
    """The pairs of a round's participants with each other, and with its global model `whole`."""
    kinds = settings.pairs or KINDS
    clients = load_participants(subject, whole.round, settings.clients)
    if settings.pairs and not clients:  # asked for by name: the user wants to know
        subject.local_points(whole.round)
    points = [replace(whole, client=client) for client in clients]
    if "client-client" in kinds:
        yield from (Pair("client-client", *two) for two in combinations(points, 2))
    if "client-global" in kinds:
        yield from (Pair("client-global", one, whole) for one in points)


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    """One piece for each line: pair, treatment of norm layers and split."""
    points = len(list_beyond(settings.low, settings.high, settings.steps)) + settings.steps + 2 * REFINE
    planned: list[Piece] = []
    for number, pair in enumerate(list_pairs(subjects, settings)):
        subject = subjects[pair.start.run]
        # without running statistics there is nothing to choose
        for policy in settings.batchnorm if running_statistics(subject.model) else [subject.policy]:
            for split in settings.splits:
                count = subject.treat_norms(policy).count_evaluated(split, None, settings.limit)
                where = (pair.end.round, None, number, policy, split)
                planned.append(LinePiece(*where, ends=pair, passes=points * count * FORWARD, vectors=6))
    if not planned:
        raise ValueError(
            f"there is no pair of {' or '.join(settings.pairs or KINDS)} here: give several runs or rounds, or a run "
            'trained with checkpoints.keep_locals = "all"'
        )
    return planned


def measure(subjects: Sequence[Subject], settings: Settings, piece: LinePiece, earlier: Datasets) -> xr.Dataset:
    """One line and its barriers."""
    pair, policy = piece.ends, piece.batchnorm
    subject = subjects[pair.start.run].treat_norms(policy)
    objective = subject.objective(piece.split, limit=settings.limit)
    start, end = (one.load(subjects, settings.model).to(objective.dtype) for one in (pair.start, pair.end))
    weights = objective.layout.parameter_count
    apart = distance(end[:weights], start[:weights])
    if policy == "frozen":
        end = torch.cat([end[:weights], start[weights:]])
    start, end = (vector(objective, one[: objective.size], "model") for one in (start, end))
    between = barrier(objective, start, end, steps=settings.steps, refine=REFINE, low=settings.low, high=settings.high)
    found = describe_points(between.path, "x", (-1,)) | _describe_barriers(between)
    found["examples"] = scalar(subject.count(piece.split, limit=settings.limit), "number of examples")
    del found["done"]  # all are
    about = {
        "kind": variable("pair", [pair.kind], "kind of pair"),
        **tell_origin("start", "pair", [pair.start], subjects),
        **tell_origin("end", "pair", [pair.end], subjects),
        "distance": variable("pair", [apart], "distance of the two models", "weight distance"),
        "x": variable("x", between.path.x, "gamma in (1 - gamma) start + gamma end"),
        "definition": variable("definition", DEFINITIONS, "max L minus: chord, mean, larger of the ends"),
    }
    return xr.Dataset(found, about)


def _describe_barriers(between: Barrier) -> dict[str, xr.Variable]:
    """Barriers by every definition, and the points that were evaluated in search of them."""
    found = {}
    for quantity, height in (("loss", between.loss), ("error", between.error)):
        heights = [getattr(height, name, np.nan) for name in DEFINITIONS]
        where = [getattr(height, name, np.nan) for name in ("linear_where", "where", "where")]
        found[f"{quantity}_barrier"] = variable("definition", heights, f"barrier of the {quantity}")
        found[f"{quantity}_where"] = variable("definition", where, "gamma of the barrier")
    # as many columns for every line, however many points the two searches shared
    refined = np.full((2 * REFINE, 3), np.nan)
    refined[: len(between.refined)] = between.refined
    names = {
        "refined_x": "gamma evaluated beyond the grid in search of the maximum",
        "refined_loss": "loss there",
        "refined_error": "error there",
    }
    columns = zip(names.items(), refined.T, strict=True)
    return found | {name: variable("refinement", values, about) for (name, about), values in columns}


def derive(subjects: Sequence[Subject], settings: Settings, answer: xr.Dataset) -> xr.Dataset:
    """Say what the axes are."""
    answer["batchnorm"].attrs["long_name"] = "treatment of norm layers"
    answer["split"].attrs["long_name"] = "data of everyone, of the run at gamma = 0"
    return answer.reset_coords("distance")


def _rounds(subject: Subject, settings: Settings) -> list[int]:
    rounds = subject.select(settings.rounds)
    return add_previous(subject, rounds) if not settings.pairs or "round-round" in settings.pairs else rounds


STUDY = Study(
    "interpolation", __doc__, Settings, pieces, measure, derive, rounds=_rounds, together=True, papers="002 F9"
)
