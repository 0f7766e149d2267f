"""Models by where they are found, and what studies that compare models have in common."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from analysis.subjects import Subject
from landscape import Layout, Objective
from landscape.errors import choose
from training.storage.atomic_files import DamagedError

FORWARD = 1 / 3  # of the cost of a gradient


@dataclass(frozen=True)
class Place:
    """Where a model is found: a run among the subjects, a round, and a client unless it is the global model."""

    run: int
    round: int
    client: int | None = None

    def theta(self, subjects: Sequence[Subject], model: str) -> Tensor:
        """Weights, followed by running statistics where there are norm layers."""
        subject = subjects[self.run]
        return (
            subject.point(self.round, model) if self.client is None else subject.local_points(self.round)[self.client]
        )

    def name(self, subjects: Sequence[Subject]) -> str:
        whose = "" if self.client is None else f" client {self.client}"
        return f"{labels(subjects)[self.run]} round {self.round}{whose}"


def participants(subject: Subject, round: int) -> dict[int, Tensor]:
    """The models of a round's participants by client; empty where a run kept none."""
    try:
        found = subject.local_points(round)
    except DamagedError:
        raise
    except ValueError:
        return {}
    return {client: found[client] for client in sorted(found)}


def local_models(subject: Subject, rounds: Sequence[int]) -> dict[int, list[int]]:
    """Who took part, for each of these rounds that kept local models; an error if none of them did."""
    found = {round: list(kept) for round in rounds if (kept := participants(subject, round))}
    if not found:
        subject.local_points(rounds[-1])  # says what is missing
    return found


def check_names(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    """At least one name, each known and given once."""
    if isinstance(given, str) or not given or len(set(given)) < len(given):
        raise ValueError(f"{what} must be a list of some of {', '.join(known)}, each once; got {given!r}")
    for one in given:
        choose(what, one, known)


def labels(subjects: Sequence[Subject]) -> list[str]:
    """Names of runs, numbered where two are called the same."""
    names = [subject.name for subject in subjects]
    return [f"{name} ({place})" if names.count(name) > 1 else name for place, name in enumerate(names, start=1)]


def check_shapes(subjects: Sequence[Subject]) -> None:
    """Refuse models that are not of one architecture."""
    names = labels(subjects)
    shapes = [{e.name: e.shape for e in Layout.of(one.model, statistics=True).entries} for one in subjects]
    for name, other in zip(names, shapes, strict=True):
        odd = sorted(key for key in {*shapes[0], *other} if shapes[0].get(key) != other.get(key))
        if odd:
            raise ValueError(
                f"models must be of one architecture, but '{odd[0]}' has shape {shapes[0].get(odd[0])} in {names[0]} "
                f"and {other.get(odd[0])} in {name}: compare runs that trained the same network"
            )


def side_by_side(subjects: Sequence[Subject], rounds: str) -> list[tuple[Place, ...]]:
    """The runs' global models of the same rounds; "last" takes each run's own."""
    selected = [subject.select(rounds) for subject in subjects]
    if rounds != "last" and any(some != selected[0] for some in selected):
        found = "; ".join(f"{name}: {some}" for name, some in zip(labels(subjects), selected, strict=True))
        raise ValueError(f'runs have different rounds ({found}): write those they share, or rounds = "last"')
    return [tuple(Place(run, round) for run, round in enumerate(some)) for some in zip(*selected, strict=True)]


def examples(subject: Subject, split: str, limit: int | None, client: int | None = None) -> int:
    """How many examples an objective has."""
    try:
        count = len(subject.examples(split, client)[1])
    except ValueError as error:
        raise ValueError(f"{error}. Write splits with what there is") from None
    return min(count, limit or count)


def under(subject: Subject, policy: str, split: str, limit: int | None) -> Objective:
    """The loss on everyone's data with norm layers treated by one of POLICIES.

    A recomputed objective takes vectors of weights only; its statistics always come from the training data.
    """
    if policy != "recomputed":
        return subject.objective(split, limit=limit)
    other = copy.copy(subject)
    other.policy = "recomputed"
    train = other.objective("train", limit=limit)
    if split == "train":
        return train
    return other.objective(split, limit=limit).with_statistics_from(train)
