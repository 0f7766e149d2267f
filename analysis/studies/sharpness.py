"""How much the loss rises around the global and the local models, on their own data and on everyone's.

Every kind of landscape.sharpness: SAM's one step (FedFSA, eq. 5) and the maximum that it stands for (eq. 3), adaptive
kinds, which rescaling a network does not change, and the average over random perturbations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from analysis.shared.places import participants
from analysis.shared.spread import PARTS, deal, standard_error
from analysis.store import Table, Variable
from analysis.studies.local_global import GLOBAL
from analysis.study import Arrays, Checked, Piece, Study, limit_setting, rounds_setting, seed_setting, setting, variable
from analysis.subjects import Subject
from landscape import Objective, sharpness
from landscape.geometry.sharpness import KINDS
from landscape.results import Sharpness

# which setting is the radius of which kind: their scales have nothing in common
RADII: dict[str, str] = {
    "sam": "radius",
    "sam_max": "radius",
    "asam": "adaptive_radius",
    "asam_all": "adaptive_radius",
    "asam_max": "adaptive_radius",
    "average": "noise",
    "average_adaptive": "adaptive_noise",
    "keskar": "box",
}
FIELDS = ("value", "standard_error", "gap", "base", "gradient_norm", "evaluations")


@dataclass(frozen=True)
class Settings(Checked):
    """Which kinds of sharpness, of which models."""

    rounds: str = rounds_setting("last")
    kinds: tuple[str, ...] = setting(
        ("sam", "sam_max", "asam", "asam_max", "average"), "definitions of sharpness", choices=KINDS
    )
    radius: float = setting(0.05, "of sam kinds", positive=True)
    adaptive_radius: float = setting(0.5, "of asam kinds", positive=True)
    noise: float = setting(0.005, "standard deviation of average", positive=True)
    adaptive_noise: float = setting(0.05, "the same relative to each weight, of adaptive averages", positive=True)
    box: float = setting(1e-3, "half the width of keskar's box, relative to each weight", positive=True)
    steps: int = setting(20, "of a maximum", least=1)
    restarts: int = setting(3, "searches for a maximum from random points; 0: one search, without a gap", least=0)
    samples: int = setting(32, "of an average", least=1)
    m: int | None = setting(
        None, "mean over batches of m examples, each perturbed by itself", least=1, absent="all at once"
    )
    clients: int | None = setting(
        None, "most participants, and most clients that the global model is seen from", least=1, absent="all of them"
    )
    everyone: bool = setting(True, "local models on everyone's data too")
    limit: int | None = limit_setting()
    seed: int = seed_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kinds:
            raise ValueError(f"kinds must name at least one of {', '.join(KINDS)}")

    def radius_of(self, kind: str) -> float:
        return float(getattr(self, RADII[kind]))

    @property
    def cost(self) -> float:
        """Gradient evaluations of one example for all kinds; a loss alone is a third of one."""
        short, again = self.steps / 4 + 2, self.steps + 2.0 if self.restarts else 0.0
        maximum, average = self.steps + 2.0 + self.restarts * short + again, 2 * self.samples / 3 + 1
        return sum(maximum if k.endswith(("max", "keskar")) else average if "average" in k else 2.0 for k in self.kinds)


def chosen(subject: Subject, settings: Settings) -> dict[int, list[int]]:
    """Rounds, each with the participants looked at; a model of one's own, or a run without local models, has none."""
    rounds = subject.select(settings.rounds)
    return {round: list(participants(subject, round))[: settings.clients] for round in rounds}


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    (subject,) = subjects
    seen = subject.clients[: settings.clients]
    everyone = _capped(settings, len(subject.examples("train")[1]))
    sizes = {client: _capped(settings, len(subject.examples("train", client)[1])) for client in subject.clients}
    shared = everyone if settings.everyone else 0
    planned = []
    for round, clients in chosen(subject, settings).items():
        for client in (*clients, GLOBAL):
            own = sum(sizes[k] for k in seen) if client == GLOBAL else sizes[client]
            work = settings.cost * (own + (everyone if client == GLOBAL else shared))
            planned.append(Piece(_key(round, client), work, vectors=10, round=round, client=client))
    return planned


def _capped(settings: Settings, size: int) -> int:
    return min(size, settings.limit or size)


def _key(round: int, client: int) -> str:
    return f"round {round} global" if client == GLOBAL else f"round {round} client {client}"


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    (subject,) = subjects
    here = piece.client == GLOBAL
    theta = subject.point(piece.round) if here else subject.local_points(piece.round)[piece.client]

    def on(client: int | None) -> Arrays:
        objective = subject.objective("train", client, limit=settings.limit)
        at = theta.to(objective.dtype)
        answers = [_sharpness(objective, settings, kind, at) for kind in settings.kinds]
        found = {name: np.asarray([float(getattr(answer, name)) for answer in answers]) for name in FIELDS}
        return found | {"sampling_error": np.asarray([sampling_error(objective, at, one) for one in answers])}

    arrays: Arrays = {}
    if here or settings.everyone:
        arrays |= {f"global_{name}": values for name, values in on(None).items()}
    if not here:
        return arrays | {f"local_{name}": values for name, values in on(piece.client).items()}
    seen = [on(client) for client in subject.clients[: settings.clients]]
    return arrays | {
        f"local_{name}": np.stack([one[name] for one in seen]) for name in (*FIELDS, "sampling_error") if seen
    }


def _sharpness(objective: Objective, settings: Settings, kind: str, theta: Tensor) -> Sharpness:
    return sharpness(
        objective,
        theta,
        settings.radius_of(kind),
        kind,
        steps=settings.steps,
        restarts=settings.restarts,
        samples=settings.samples,
        m=settings.m,
        seed=settings.seed,
    )


def sampling_error(objective: Objective, theta: Tensor, found: Sharpness) -> float:
    """Standard error of a rise as an estimate of that on all examples, the perturbation held; 0 where all were seen.

    NaN where there is no single perturbation: averages, and means over batches.
    """
    if objective.population is None:
        return 0.0
    if found.perturbation is None or found.m is not None or found.kind == "keskar":
        return math.nan
    parts = deal(objective, min(PARTS, objective.count))
    rises = np.asarray([part.loss(theta + found.perturbation) - part.loss(theta) for part in parts])
    return float(standard_error(rises, [part.count for part in parts], objective.population))


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    planned = chosen(subject, settings)
    about = {
        "kind": Variable(("kind",), np.asarray(settings.kinds), "kind of sharpness"),
        "radius": Variable(
            ("kind",), np.asarray([settings.radius_of(kind) for kind in settings.kinds]), "radius or deviation"
        ),
    }
    population = len(subject.examples("train")[1])
    measured = {"examples": _capped(settings, population), "population": population}  # of everyone's data
    rows = [(round, client) for round, clients in planned.items() for client in clients]
    each = partial(variable, found, [_key(round, client) for round, client in rows])
    seen = np.asarray(subject.clients[: settings.clients], dtype=np.int64)
    shared = {
        "round": Variable(("round",), np.asarray(list(planned)), "communication round"),
        **about,
    }
    every = partial(variable, found, [_key(round, GLOBAL) for round in planned])
    shared |= _measures(every, "global", ("round", "kind"), "the global model on everyone's data")
    result = {}
    if len(seen):
        shared["client"] = Variable(("client",), seen, "client")
        shared |= _measures(every, "local", ("round", "client", "kind"), "the global model on each client's data")
    if rows:
        local = {
            "round_of": Variable(("row",), np.asarray([round for round, _ in rows]), "communication round"),
            "client": Variable(("row",), np.asarray([client for _, client in rows]), "participant"),
            **about,
            **_measures(each, "local", ("row", "kind"), "the client's model on its own data"),
        }
        if settings.everyone:
            local |= _measures(each, "global", ("row", "kind"), "the client's model on everyone's data")
        result["local_models"] = Table(local, measured)
    return {**result, "global_model": Table(shared, measured)}


def _measures(each: partial[Variable], prefix: str, dims: tuple[str, ...], where: str) -> dict[str, Variable]:
    words = {
        "value": f"sharpness of {where}: how much the loss rises (keskar: per cent)",
        "standard_error": "its standard error over samples or batches; NaN for one answer without randomness",
        "sampling_error": "its standard error as an estimate of that on all examples; 0: all were seen, NaN: unknown",
        "gap": "of a maximum, which is a lower bound: how far the lower of two independent searches fell short of it",
        "base": "the loss itself, same model and data",
        "gradient_norm": "norm of the gradient there: away from minima radius times it dominates",
        "evaluations": "loss or gradient evaluations spent",
    }
    return {f"{prefix}_{name}": each(f"{prefix}_{name}", dims, text) for name, text in words.items()}


STUDY = Study(
    name="sharpness",
    about="SAM, maximised, adaptive and average-case sharpness of global and local models, on own and everyone's data",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="000 eq 3",
)
