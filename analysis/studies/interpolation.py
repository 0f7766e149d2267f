"""Straight lines between models: is there a barrier, or do they lie in one basin?

w(gamma) = (1 - gamma) a + gamma b for gamma in [-1, 2] (FedGloSS, Figure 9), with the three barriers in use. Clients
start from one model and so do runs of one seed; no permutation of neurons is matched.

Running statistics of norm layers, by `batchnorm` (each line is measured under every one that is named):
  interpolated  move with the weights, so that both ends are the stored models
  recomputed    re-estimated on training data at every point, for the test loss too
  frozen        stay those of a: for comparison, b is then not itself
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from analysis.shared.places import FORWARD, Place, check_names, check_shapes, examples, side_by_side, under
from analysis.store import Table, Variable
from analysis.study import (
    Arrays,
    Checked,
    Piece,
    Study,
    limit_setting,
    model_setting,
    rounds_setting,
    setting,
    stacked,
    variable,
)
from analysis.subjects import SPLITS, Subject
from landscape import barrier
from landscape.geometry.surface import coordinates, sample, vector
from landscape.layout import running_statistics
from landscape.results import Height

KINDS = ("run-run", "client-client", "client-global", "round-round")
POLICIES = ("interpolated", "recomputed", "frozen")
DEFINITIONS = ("linear", "mean", "max")
REFINE = 8  # evaluations around each of the two highest points: a maximum over a grid is a lower bound


@dataclass(frozen=True)
class Settings(Checked):
    """Between which models, on which data."""

    rounds: str = rounds_setting("last")
    pairs: tuple[str, ...] = setting((), "kinds of pairs; an empty list: all that these runs have", choices=KINDS)
    model: str = model_setting()
    steps: int = setting(21, "points from one model to the other; beyond them the spacing is the same", least=3)
    low: float = setting(-1.0, "where the line begins; the first model is at 0")
    high: float = setting(2.0, "where it ends; the second model is at 1")
    clients: int = setting(3, "most participants of a round in pairs", least=1)
    splits: tuple[str, ...] = setting(SPLITS, "data, each a line", choices=SPLITS)
    batchnorm: tuple[str, ...] = setting(
        POLICIES,
        "statistics of norm layers in between: interpolated, measured anew, those of the first model",
        choices=POLICIES,
    )
    limit: int | None = limit_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("splits", self.splits, SPLITS)
        check_names("batchnorm", self.batchnorm, POLICIES)
        if self.pairs:
            check_names("pairs", self.pairs, KINDS)
        if not (-np.inf < self.low <= 0 and 1 <= self.high < np.inf):
            raise ValueError(f"low must be at most 0 and high at least 1, got {self.low} and {self.high}")


@dataclass(frozen=True)
class Pair:
    kind: str
    start: Place
    end: Place


def policies(subject: Subject, wanted: Sequence[str]) -> list[str]:
    """Those that differ: without running statistics there is nothing to choose."""
    return list(wanted) if running_statistics(subject.model) else [subject.policy]


def previous(subject: Subject, rounds: Sequence[int]) -> list[int]:
    """These rounds; a single one together with the checkpoint before it, so that there is a pair."""
    before = [round for round in subject.rounds if round < rounds[0]]
    return [*before[-1:], *rounds] if len(rounds) == 1 else list(rounds)


def pairs(subjects: Sequence[Subject], settings: Settings, only: int | None = None) -> Iterator[Pair]:
    """Every pair once; `only`: those whose second model is of this round, without opening other checkpoints."""
    kinds = settings.pairs or KINDS
    if "run-run" in kinds and len(subjects) > 1:
        check_shapes(subjects)
        for places in side_by_side(subjects, settings.rounds):
            yield from (Pair("run-run", *two) for two in combinations(places, 2))
    for run, subject in enumerate(subjects):
        rounds = subject.select(settings.rounds)
        if "round-round" in kinds:
            for a, b in pairwise(previous(subject, rounds)):
                yield Pair("round-round", Place(run, a), Place(run, b))
        for round in rounds:
            if {"client-client", "client-global"} & {*kinds} and only in (None, round):
                try:
                    clients = sorted(subject.local_points(round))[: settings.clients]
                except ValueError:
                    if settings.pairs:  # asked for by name: the user wants to know
                        raise
                    continue
                places = tuple(Place(run, round, client) for client in clients)
                if "client-client" in kinds:
                    yield from (Pair("client-client", *two) for two in combinations(places, 2))
                if "client-global" in kinds:
                    yield from (Pair("client-global", one, Place(run, round)) for one in places)


def rows(subjects: Sequence[Subject], settings: Settings, only: int | None = None) -> Iterator[tuple[str, Pair, str]]:
    """(name, pair, policy) of every line."""
    for pair in pairs(subjects, settings, only):
        ends = f"{pair.start.name(subjects)} to {pair.end.name(subjects)}"
        for policy in policies(subjects[pair.start.run], settings.batchnorm):
            yield f"{pair.kind}, {ends}, {policy}", pair, policy


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    points = len(outside(settings)) + settings.steps + 2 * REFINE
    planned = []
    for name, pair, policy in rows(subjects, settings):
        for split in settings.splits:
            count = examples(subjects[pair.start.run], split, settings.limit)
            if policy == "recomputed":
                count += examples(subjects[pair.start.run], "train", settings.limit)
            planned.append(Piece(f"{name}, {split}", points * count * FORWARD, 6, round=pair.end.round))
    if not planned:
        raise ValueError(
            f"there is no pair of {' or '.join(settings.pairs or KINDS)} here: give several runs or rounds, or a run "
            'trained with checkpoints.keep_locals = "all"'
        )
    return planned


def outside(settings: Settings) -> NDArray[np.float64]:
    """The coordinates before the first model and beyond the second."""
    before, beyond = (round((settings.steps - 1) * length) for length in (-settings.low, settings.high - 1))
    left = coordinates(settings.low, 0.0, before + 1)[:-1] if before else np.zeros(0)
    right = coordinates(1.0, settings.high, beyond + 1)[1:] if beyond else np.zeros(0)
    return np.concatenate([left, right])


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    name, _, split = piece.key.rpartition(", ")
    pair, policy = next(row[1:] for row in rows(subjects, settings, piece.round) if row[0] == name)
    objective = under(subjects[pair.start.run], policy, split, settings.limit)
    start, end = (place.theta(subjects, settings.model).to(objective.dtype) for place in (pair.start, pair.end))
    weights = objective.layout.parameters[-1].stop
    distance = float((end[:weights].double() - start[:weights].double()).norm())
    if policy == "frozen":
        end = torch.cat([end[:weights], start[weights:]])
    start, end = (vector(objective, one[: objective.size], "model") for one in (start, end))
    between = barrier(objective, start, end, steps=settings.steps, refine=REFINE)
    x = outside(settings)
    beyond = (
        sample(objective, x, lambda g, flat: torch.mul(start, 1 - g, out=flat).add_(end, alpha=g)) if len(x) else None
    )
    arrays: Arrays = {"distance": np.asarray(distance)}
    at = int((x < 0).sum())
    for field in ("loss", "error", "standard_error"):
        inner, outer = getattr(between.path, field), getattr(beyond, field, None)
        inner = np.full(settings.steps, np.nan) if inner is None else inner
        outer = np.full(len(x), np.nan) if outer is None else outer
        arrays[field] = np.concatenate([outer[:at], inner, outer[at:]])
    for quantity, height in (("loss", between.loss), ("error", between.error)):
        arrays[f"{quantity}_barrier"], arrays[f"{quantity}_where"] = _heights(height)
    # as many columns for every line, however many points the two searches shared
    refined = np.full((2 * REFINE, 3), np.nan)
    refined[: len(between.refined)] = between.refined
    return arrays | {"refined_x": refined[:, 0], "refined_loss": refined[:, 1], "refined_error": refined[:, 2]}


def _heights(height: Height | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The barriers in the order of DEFINITIONS, and where on the line they are."""
    if height is None:
        return np.full(3, np.nan), np.full(3, np.nan)
    return (
        np.array([height.linear, height.mean, height.max]),
        np.array([height.linear_where, height.where, height.where]),
    )


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    lines = list(rows(subjects, settings))
    beyond = outside(settings)
    x = np.sort(np.concatenate([beyond, coordinates(0.0, 1.0, settings.steps)]))

    def stack(field: str) -> NDArray[np.float64]:
        return np.stack([stacked(found, [f"{name}, {s}" for s in settings.splits], field) for name, _, _ in lines])

    def text(values: Sequence[str], about: str) -> Variable:
        return Variable(("row",), np.asarray(values), about)

    counts = [[examples(subjects[pair.start.run], s, settings.limit) for s in settings.splits] for _, pair, _ in lines]
    first = partial(variable, found, [f"{name}, {settings.splits[0]}" for name, _, _ in lines])
    by_x, by_kind, extra = (("row", "split", last) for last in ("x", "definition", "refinement"))
    where = "gamma of the barrier"
    variables = {
        "kind": text([pair.kind for _, pair, _ in lines], "kind of pair"),
        "start": text([pair.start.name(subjects) for _, pair, _ in lines], "model at gamma = 0"),
        "end": text([pair.end.name(subjects) for _, pair, _ in lines], "model at gamma = 1"),
        "batchnorm": text([policy for _, _, policy in lines], "treatment of norm layers"),
        "distance": first("distance", ("row",), "distance of the two models", "weight distance"),
        "split": Variable(("split",), np.asarray(settings.splits), "data of everyone, of the run at gamma = 0"),
        "examples": Variable(("row", "split"), np.asarray(counts), "number of examples"),
        "x": Variable(("x",), x, "gamma in (1 - gamma) start + gamma end"),
        "definition": Variable(
            ("definition",), np.asarray(DEFINITIONS), "max L minus: chord, mean, larger of the ends"
        ),
        "loss": Variable(by_x, stack("loss"), "mean loss"),
        "error": Variable(by_x, stack("error"), "fraction of wrong predictions"),
        "standard_error": Variable(
            by_x, stack("standard_error"), "standard error of the loss; NaN: all data were used"
        ),
        "loss_barrier": Variable(by_kind, stack("loss_barrier"), "barrier of the loss"),
        "loss_where": Variable(by_kind, stack("loss_where"), where),
        "error_barrier": Variable(by_kind, stack("error_barrier"), "barrier of the error"),
        "error_where": Variable(by_kind, stack("error_where"), where),
        "refined_x": Variable(extra, stack("refined_x"), "gamma evaluated beyond the grid in search of the maximum"),
        "refined_loss": Variable(extra, stack("refined_loss"), "loss there"),
        "refined_error": Variable(extra, stack("refined_error"), "error there"),
    }
    return {"lines": Table(variables)}


def _rounds(subject: Subject, settings: Settings) -> list[int]:
    rounds = subject.select(settings.rounds)
    return previous(subject, rounds) if not settings.pairs or "round-round" in settings.pairs else rounds


STUDY = Study(
    name="interpolation",
    about="loss and error on straight lines between runs, clients, rounds and the global model, with their barriers",
    settings=Settings,
    rounds=_rounds,
    pieces=pieces,
    measure=measure,
    tables=tables,
    together=True,
    papers="002 F9",
)
