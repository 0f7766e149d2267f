"""Accuracy on each client's own test data, of the global model and of one made for it (training.personal).

Results of single strategies are also kept beside the run (personal/*.json), where `landscape personal` finds them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import xarray as xr
from pydantic import Field, model_validator

from analysis.study import Datasets, Piece, Rounds, Study, require_names, scalar, variable
from analysis.subjects import Run, Subject
from training.personal import evaluation
from training.personal.client_evaluation import open_subject, sample_clients
from training.settings import Count, Names, settings

EPOCHS = {"finetune": 5, "knn": 1, "global": 0}  # for the estimate of time; the others train as long as the run did


@settings
class Settings:
    """How models are made for clients, and for whom."""

    rounds: Rounds = "last"
    model: Annotated[
        Literal["server", "mean", "swa"], Field(description="the global model that personal ones are made from")
    ] = "server"
    strategies: Annotated[Names, require_names(evaluation.STRATEGIES)] = Field(
        default=("finetune", "knn"), description="how models are made; local trains again as long as the run did"
    )
    options: Names = Field(default=(), description='as ["epochs=5"], for every strategy that knows the name')
    clients: Count | None = Field(default=None, description="most clients, drawn once; none: all of them")

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        evaluation.parse_options(self.strategies, self.options)
        return self


@dataclass(frozen=True)
class StrategyPiece(Piece):
    """One strategy at one round."""

    dims: ClassVar[tuple[str, ...]] = ("strategy", "round")
    strategy: str = "global"


def require_run(subject: Subject) -> Run:
    """The run that is personalised."""
    if not isinstance(subject, Run):
        raise ValueError(f"{subject.name}: a single model has no clients; personal needs a run of landscape train")
    return subject


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece for each round and strategy."""
    run = require_run(subject)
    chosen = sample_clients(run.federation, settings.clients)
    examples = sum(len(run.federation.client_indices[client]) for client in chosen)
    whole_run = run.recipe.rounds.count * run.recipe.local.epochs
    rounds = run.select_with(settings.rounds, settings.model)
    return [
        StrategyPiece(round, strategy=name, passes=EPOCHS.get(name, whole_run) * examples, vectors=4)
        for round in rounds
        for name in settings.strategies
    ]


def measure(subject: Subject, settings: Settings, piece: StrategyPiece, earlier: Datasets) -> xr.Dataset:
    """The accuracy of one strategy for every client."""
    run = require_run(subject)
    opened = open_subject(
        run.path, round=piece.round, model=settings.model, data_root=run.data_root, device=run.limits.device
    )
    options = evaluation.parse_options(settings.strategies, settings.options)[piece.strategy]
    result = evaluation.evaluate(opened, piece.strategy, options, sample=settings.clients)
    scores, left = result.clients, "NaN: left out"
    found = {
        "before": variable("client", [one.before for one in scores], f"accuracy of the global model; {left}"),
        "after": variable("client", [one.after for one in scores], f"accuracy of the client's own model; {left}"),
        "examples": variable("client", [one.examples for one in scores], f"test examples of the client; {left}"),
        "mean": scalar(result.mean, "mean accuracy over clients"),
        "mean_before": scalar(result.mean_before, "mean accuracy of the global model over clients"),
        "spread": scalar(result.std, "standard deviation over clients (n)"),
        "standard_error": scalar(result.std / math.sqrt(len(scores)), "of the mean: spread / sqrt(clients)"),
        "worst_tenth": scalar(result.worst_tenth, "mean accuracy of the tenth of the clients that do worst"),
        "left_out": scalar(result.left_out, "clients without test examples, or without a model of their own"),
        "options": variable((), json.dumps(result.options, sort_keys=True), "options of the strategy, as JSON"),
    }
    return xr.Dataset(found, {"client": [one.client for one in scores]})


def derive(subject: Subject, settings: Settings, answer: xr.Dataset) -> xr.Dataset:
    """Add the clients that every strategy left out."""
    clients = sample_clients(require_run(subject).federation, settings.clients)
    about = answer["client"].attrs
    return answer.reindex(client=clients).assign_coords(client=xr.Variable("client", clients, about))


STUDY = Study("personal", __doc__, Settings, pieces, measure, derive, papers="000 T1 T2, 004 T5")
