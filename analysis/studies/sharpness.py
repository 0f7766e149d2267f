"""How much the loss rises around the global and the local models, on their own data and on everyone's.

Every kind of landscape.sharpness: SAM's one step (FedFSA, eq. 5) and the maximum that it stands for (eq. 3), adaptive
kinds, which rescaling a network does not change, and the average over random perturbations.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from analysis.shared.model_points import describe_views, load_model, load_participants
from analysis.study import Clients, Datasets, Floats, Limit, Piece, Rounds, Seed, Study, require_names, variable
from analysis.subjects import Subject
from landscape import sharpness
from landscape.geometry.sharpness import KINDS
from landscape.objectives.subsample_errors import sharpness_error
from training.settings import Count, Names, Positive, Whole, settings

DEFAULTS = ("sam", "sam_max", "asam", "asam_max", "average")
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
MEASURES = {  # attribute of a Sharpness, and the sampling error -> what it means
    "value": "sharpness of {model}: how much the loss rises (keskar: per cent)",
    "standard_error": "its standard error over samples or batches; NaN for one answer without randomness",
    "sampling_error": "its standard error as an estimate of that on all examples; 0: all were seen, NaN: unknown",
    "gap": "of a maximum, which is a lower bound: how far the lower of two independent searches fell short of it",
    "base": "the loss itself, same model and data",
    "gradient_norm": "norm of the gradient there: away from minima radius times it dominates",
    "evaluations": "loss or gradient evaluations spent",
}


@settings
class Settings:
    """Which kinds of sharpness, of which models."""

    rounds: Rounds = "last"
    kinds: Annotated[Names, require_names(KINDS), Field(description="definitions of sharpness")] = DEFAULTS
    radius: Positive = Field(default=0.05, description="of sam kinds")
    adaptive_radius: Positive = Field(default=0.5, description="of asam kinds")
    noise: Positive = Field(default=0.005, description="standard deviation of average")
    adaptive_noise: Positive = Field(default=0.05, description="the same relative to each weight, of adaptive averages")
    box: Positive = Field(default=1e-3, description="half the width of keskar's box, relative to each weight")
    steps: Count = Field(default=20, description="of a maximum")
    restarts: Whole = Field(default=3, description="searches for a maximum from random points; 0: one, without a gap")
    samples: Count = Field(default=32, description="of an average")
    m: Count | None = Field(default=None, description="mean over batches of m, each perturbed by itself; none: no mean")
    clients: Clients = None
    everyone: bool = Field(default=True, description="local models on everyone's data too")
    limit: Limit = None
    seed: Seed = 0

    def radius_of(self, kind: str) -> float:
        """The radius, or the standard deviation, of a kind of sharpness."""
        return float(getattr(self, RADII[kind]))

    @property
    def cost(self) -> float:
        """Gradient evaluations of one example for all kinds; a loss alone is a third of one."""
        short, again = self.steps / 4 + 2, self.steps + 2.0 if self.restarts else 0.0
        maximum, average = self.steps + 2.0 + self.restarts * short + again, 2 * self.samples / 3 + 1
        return sum(maximum if k.endswith(("max", "keskar")) else average if "average" in k else 2.0 for k in self.kinds)


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece for each participant's model, if there are any, and one for the global model, of every round."""
    everyone = subject.count(limit=settings.limit)
    sizes = {client: subject.count("train", client, settings.limit) for client in subject.clients}
    seen = sum(sizes[client] for client in subject.clients[: settings.clients])
    planned = []
    for round in subject.select(settings.rounds):
        for client in load_participants(subject, round, settings.clients):
            count = sizes[client] + everyone * settings.everyone
            planned.append(Piece(round, client, passes=settings.cost * count, vectors=10))
        planned.append(Piece(round, passes=settings.cost * (seen + everyone), vectors=10))
    return planned


def measure(subject: Subject, settings: Settings, piece: Piece, earlier: Datasets) -> xr.Dataset:
    """One model, on everyone's data and on single clients'."""
    theta, clients = load_model(subject, piece), subject.clients[: settings.clients]
    options = {name: getattr(settings, name) for name in ("steps", "restarts", "samples", "m", "seed")}

    def measure_on(client: int | None) -> dict[str, Floats]:
        objective = subject.objective("train", client, limit=settings.limit)
        at = theta.to(objective.dtype)
        answers = [sharpness(objective, at, settings.radius_of(kind), kind, **options) for kind in settings.kinds]
        errors = [{"sampling_error": sharpness_error(objective, at, one)} for one in answers]
        rows = [vars(one) | error for one, error in zip(answers, errors, strict=True)]
        return {name: np.asarray([row[name] for row in rows], dtype=np.float64) for name in MEASURES}

    found = describe_views(piece, clients, measure_on, "kind", MEASURES, settings.everyone)
    coords = {
        "kind": variable("kind", settings.kinds, "kind of sharpness"),
        "radius": variable("kind", [settings.radius_of(kind) for kind in settings.kinds], "radius or deviation"),
        **({"client": clients} if piece.client is None and clients else {}),
    }
    return xr.Dataset(found, coords, subject.count_seen("train", settings.limit))


STUDY = Study("sharpness", __doc__, Settings, pieces, measure, papers="000 eq 3")
