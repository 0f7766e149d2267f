"""How well every client is served, by the global model and by one made for it: the ways of training.personal.

Results of single ways are also kept beside the run (personal/*.json), where `landscape personal` finds them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.store import Table, Variable
from analysis.study import Arrays, Checked, Piece, Study, model_setting, rounds_setting, setting
from analysis.subjects import MODELS, Run, Subject
from training.personal import evaluation
from training.personal.client_evaluation import open_subject, sample_clients


@dataclass(frozen=True)
class Settings(Checked):
    """How models are made for clients, and for whom."""

    rounds: str = rounds_setting("last")
    model: str = model_setting("server", MODELS)
    ways: tuple[str, ...] = setting(
        ("finetune", "knn"),
        "how models are made; local and fedcr train again as long as the run did",
        choices=evaluation.STRATEGIES,
    )
    options: tuple[str, ...] = setting((), 'of the ways, as ["epochs=5"], for every way that knows the name')
    clients: int | None = setting(None, "most clients, drawn once", least=1, absent="all of them")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ways:
            raise ValueError(f"ways must name at least one of {', '.join(evaluation.STRATEGIES)}")
        evaluation.parse_options(self.ways, self.options)


def run_of(subject: Subject) -> Run:
    """The run that is personalised."""
    if not isinstance(subject, Run):
        raise ValueError(f"{subject.name}: a single model has no clients; personal needs a run of landscape train")
    return subject


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    run = run_of(subjects[0])
    examples = sum(
        len(run.federation.client_indices[client]) for client in sample_clients(run.federation, settings.clients)
    )
    epochs = {"finetune": 5, "knn": 1, "global": 0}  # the others train as long as the run did
    whole_run = run.recipe.rounds.count * run.recipe.local.epochs
    planned = []
    for round in run.select(settings.rounds):
        run.point(round, settings.model)
        for way in settings.ways:
            planned.append(Piece(f"round {round} {way}", epochs.get(way, whole_run) * examples, vectors=4, round=round))
    return planned


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    run, way = run_of(subjects[0]), piece.key.split()[-1]
    subject = open_subject(run.path, round=piece.round, model=settings.model, data_root=run.data_root)
    options = evaluation.parse_options(settings.ways, settings.options)[way]
    result = evaluation.evaluate(subject, way, options, sample=settings.clients)
    return {
        "client": np.asarray([score.client for score in result.clients]),
        "examples": np.asarray([score.examples for score in result.clients]),
        "before": np.asarray([score.before for score in result.clients]),
        "after": np.asarray([score.after for score in result.clients]),
        "mean": np.asarray(result.mean),
        "mean_before": np.asarray(result.mean_before),
        "spread": np.asarray(result.std),
        "worst_tenth": np.asarray(result.worst_tenth),
        "left_out": np.asarray(result.left_out),
        "options": np.asarray(json.dumps(result.options, sort_keys=True)),
    }


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    run = run_of(subjects[0])
    rounds, clients = run.select(settings.rounds), sample_clients(run.federation, settings.clients)
    places = {client: place for place, client in enumerate(clients)}

    def each(name: str, long_name: str) -> Variable:
        values = np.full((len(settings.ways), len(rounds), len(clients)), np.nan)
        for i, way in enumerate(settings.ways):
            for j, round in enumerate(rounds):
                arrays = found[f"round {round} {way}"]
                values[i, j, [places[int(client)] for client in arrays["client"]]] = arrays[name]
        return Variable(("way", "round", "client"), values, f"{long_name}; NaN: left out")

    def all_of(name: str, long_name: str) -> Variable:
        rows = [[found[f"round {round} {way}"][name] for round in rounds] for way in settings.ways]
        return Variable(("way", "round"), np.asarray(rows), long_name)

    spread = all_of("spread", "standard deviation over clients (n)")
    counted = len(clients) - all_of("left_out", "").values
    return {
        "personal": Table(
            {
                "way": Variable(("way",), np.asarray(settings.ways), "how models are made for clients"),
                "round": Variable(("round",), np.asarray(rounds), "communication round"),
                "client": Variable(("client",), np.asarray(clients), "client"),
                "before": each("before", "accuracy of the global model on the client's test examples, a fraction"),
                "after": each("after", "accuracy of the client's own model on them, a fraction"),
                "examples": each("examples", "test examples of the client"),
                "mean": all_of("mean", "mean accuracy over clients"),
                "mean_before": all_of("mean_before", "mean accuracy of the global model over clients"),
                "spread": spread,
                "standard_error": Variable(
                    ("way", "round"), spread.values / np.sqrt(counted), "of the mean: spread / sqrt(clients)"
                ),
                "worst_tenth": all_of("worst_tenth", "mean accuracy of the tenth of the clients that do worst"),
                "left_out": all_of("left_out", "clients without test examples, or without a model of their own"),
                "options": all_of("options", "options of the way, as JSON"),
            }
        )
    }


STUDY = Study(
    name="personal",
    about="accuracy of personal models on each client's own test data, before and after; spread and worst tenth",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="000 T1 T2, 004 T5",
)
