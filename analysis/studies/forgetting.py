"""What is known and what is forgotten: accuracy per class and per client over rounds, of global and of local models.

Counts are exact whole numbers; accuracies are their quotients. (FedSAM/FedASAM, Figures 3 and 7; FedSoL, Figure 3;
the forgetting measure is that of FedNTD, Lee et al. 2022.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from analysis.store import Table, Variable
from analysis.studies.features import drawn, look
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
from analysis.subjects import SPLITS, Run, Subject

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Settings(Checked):
    """Whose accuracy is looked at, and on which data."""

    rounds: str = rounds_setting("all")
    model: str = model_setting()
    split: str = setting("test", "everyone's data, looked at by class", choices=SPLITS)
    client_split: str = setting("train", "each client's own data", choices=SPLITS)
    local: bool = setting(True, "the participants' models too, at rounds that keep them")
    clients: int | None = setting(None, "most clients looked at", least=1, absent="all of them")
    limit: int | None = limit_setting()
    seed: int = seed_setting()


def confusion(labels: Tensor, predicted: Tensor, classes: int) -> Ints:
    """How many examples of each class (rows) were taken for each class (columns)."""
    places = labels * classes + predicted
    counts: Ints = torch.bincount(places, minlength=classes * classes).view(classes, classes).numpy()
    return counts


def share(part: NDArray[Any], total: NDArray[Any]) -> Floats:
    """part / total, NaN where there is nothing."""
    nothing = np.full(np.broadcast_shapes(part.shape, total.shape), np.nan)
    quotient: Floats = np.divide(part, total, out=nothing, where=total > 0)
    return quotient


def forgotten(accuracy: Floats, rounds: Sequence[int]) -> Floats:
    """max over earlier rounds t >= 1 of A(t), minus A(T), for every T: (rounds, m); NaN where nothing came before.

    The untrained model (round 0) knows nothing that could be forgotten: a constant guess has one class right.
    """
    lost = np.full(accuracy.shape, np.nan)
    for place in range(1, len(rounds)):
        earlier = accuracy[[t for t in range(place) if rounds[t] >= 1]]
        if len(earlier):
            lost[place] = earlier.max(axis=0) - accuracy[place]
    return lost


def mean_known(values: Floats) -> Floats:
    """Mean over the last axis without NaN entries; NaN where all are."""
    known = ~np.isnan(values)
    return share(np.where(known, values, 0.0).sum(axis=-1), known.sum(axis=-1))


def group_means(values: Tensor, groups: Tensor, count: int) -> Floats:
    """Mean of values (n,) in each group; NaN for an empty one."""
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, groups, values.double())
    return share(sums.numpy(), torch.bincount(groups, minlength=count).numpy())


def everyone(subject: Subject, settings: Settings) -> tuple[Tensor, Tensor]:
    """The examples of everyone that are looked at."""
    inputs, labels = subject.examples(settings.split)
    places = drawn(labels, settings.limit, settings.seed, "forgetting")
    return inputs[places], labels[places]


def chosen(subject: Subject, settings: Settings) -> list[int]:
    return subject.clients[: settings.clients]


def participants(subject: Subject, settings: Settings, round: int) -> dict[int, Tensor]:
    """Models of the round's participants, where the checkpoint keeps them."""
    kept = subject.checkpoint(round).locals if settings.local and isinstance(subject, Run) else {}
    return {client: kept[client] for client in sorted(kept)[: settings.clients]}


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    (subject,) = subjects
    rounds = subject.select(settings.rounds)
    for round in rounds:
        subject.point(round, settings.model)
    count = len(everyone(subject, settings)[1])
    own = sum(len(subject.examples(settings.client_split, client)[1]) for client in chosen(subject, settings))
    # looking is a third of a gradient
    work = {round: (count * (1 + len(participants(subject, settings, round))) + own) / 3 for round in rounds}
    return [Piece(f"round {round}", passes, round=round) for round, passes in work.items()]


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    (subject,) = subjects
    inputs, labels = everyone(subject, settings)
    theta = subject.point(piece.round, settings.model)
    seen, predicted = _look(subject, theta, inputs)
    arrays: Arrays = {
        "confusion": confusion(labels, predicted, subject.classes),
        "feature_norm": group_means(seen["feature"], labels, subject.classes),
        "output_norm": group_means(seen["output"], labels, subject.classes),
    }
    if subject.clients:
        rows = [_client(subject, settings, theta, client) for client in chosen(subject, settings)]
        names = ("client_correct", "client_total", "client_feature_norm", "client_output_norm")
        arrays |= dict(zip(names, map(np.asarray, zip(*rows, strict=True)), strict=True))
    local = participants(subject, settings, piece.round)
    for client, point in local.items():
        _, predicted = _look(subject, point, inputs)
        arrays[f"local_confusion {client}"] = confusion(labels, predicted, subject.classes)
        own, theirs = subject.examples("train", client)
        _, predicted = _look(subject, point, own)
        arrays[f"local_own {client}"] = confusion(theirs, predicted, subject.classes)
    return arrays


def _client(subject: Subject, settings: Settings, theta: Tensor, client: int) -> tuple[int, int, float, float]:
    """Examples of a client that are right, all that were looked at, and mean norms of features and outputs."""
    inputs, labels = subject.examples(settings.client_split, client)
    places = drawn(labels, settings.limit, settings.seed, "forgetting", client)
    norms, predicted = _look(subject, theta, inputs[places])
    right = int((predicted == labels[places]).sum())
    return right, len(places), float(norms["feature"].mean()), float(norms["output"].mean())


def _look(subject: Subject, theta: Tensor, inputs: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """L2 norms of features and outputs of every example, and the predicted classes."""
    seen = look(subject, theta, inputs)
    norms = {"feature": seen.features.double().norm(dim=1), "output": seen.outputs.double().norm(dim=1)}
    return norms, seen.outputs.argmax(dim=1)


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    rounds = subject.select(settings.rounds)
    each = partial(variable, found, [f"round {round}" for round in rounds])
    axis = Variable(("round",), np.asarray(rounds), "communication round")
    classes = Variable(("class",), np.arange(subject.classes), "true class")
    counts = each("confusion", ("round", "class", "predicted"), "examples of a class that are taken for another")
    right, total = np.einsum("rcc->rc", counts.values), counts.values.sum(axis=2)
    accuracy = share(right, total)
    result = {
        "global_model": Table(
            {
                "round": axis,
                "class": classes,
                "predicted": Variable(("predicted",), np.arange(subject.classes), "class that the model gives"),
                "confusion": counts,
                "correct": Variable(("round", "class"), right, "examples of each class that are right"),
                "total": Variable(("class",), total[0], f"{settings.split} examples of each class"),
                "accuracy": Variable(("round", "class"), accuracy, "accuracy on each class, a fraction"),
                "accuracy_all": Variable(("round",), share(right.sum(1), total.sum(1)), "accuracy on all of them"),
                "feature_norm": each("feature_norm", ("round", "class"), "mean L2 norm of what enters the classifier"),
                "output_norm": each("output_norm", ("round", "class"), "mean L2 norm of the logits"),
                **_forgotten(accuracy, rounds, "class"),
            }
        )
    }
    if subject.clients:
        right, total = (each(f"client_{name}", ("round", "client"), name).values for name in ("correct", "total"))
        accuracy, data = share(right, total), f"{settings.client_split} examples of each client"
        by_client = ("round", "client")
        result["clients"] = Table(
            {
                "round": axis,
                "client": Variable(("client",), np.asarray(chosen(subject, settings)), "client"),
                "correct": Variable(by_client, right, f"{data} that the global model has right"),
                "total": Variable(("client",), total[0], data),
                "accuracy": Variable(by_client, accuracy, "accuracy of the global model on each client, a fraction"),
                "feature_norm": each("client_feature_norm", by_client, "mean L2 norm of what enters the classifier"),
                "output_norm": each("client_output_norm", by_client, "mean L2 norm of the logits"),
                **_forgotten(accuracy, rounds, "client"),
            }
        )
    rows = [(round, client) for round in rounds for client in participants(subject, settings, round)]
    return result | ({"local_models": _local(found, rows, classes, settings)} if rows else {})


def _forgotten(accuracy: Floats, rounds: Sequence[int], of: str) -> dict[str, Variable]:
    lost = forgotten(accuracy, rounds)
    formula = "max over earlier rounds (from 1) of accuracy, minus accuracy"
    return {
        f"forgotten_{of}": Variable(("round", of), lost, f"{formula}; negative: better than ever"),
        "forgetting": Variable(("round",), mean_known(lost), f"mean over each {of} of: {formula}"),
    }


def _local(
    found: Mapping[str, Arrays], rows: Sequence[tuple[int, int]], classes: Variable, settings: Settings
) -> Table:
    wide, own = (
        np.stack([found[f"round {round}"][f"{name} {client}"] for round, client in rows])
        for name in ("local_confusion", "local_own")
    )
    right, total = np.einsum("rcc->rc", wide), wide.sum(axis=2)
    where = f"everyone's {settings.split} data"
    return Table(
        {
            "round_of": Variable(("row",), np.asarray([round for round, _ in rows]), "communication round"),
            "client": Variable(("row",), np.asarray([client for _, client in rows]), "participant"),
            "class": classes,
            "correct": Variable(("row", "class"), right, f"examples that its model has right, of {where}"),
            "accuracy": Variable(("row", "class"), share(right, total), f"accuracy of its model per class on {where}"),
            "accuracy_all": Variable(("row",), share(right.sum(1), total.sum(1)), f"accuracy of its model on {where}"),
            "own_accuracy": Variable(
                ("row",),
                share(np.einsum("rcc->r", own), own.sum(axis=(1, 2))),
                "accuracy of its model on its own training data",
            ),
            "own_total": Variable(("row", "class"), own.sum(axis=2), "its own training examples of each class"),
        }
    )


STUDY = Study(
    name="forgetting",
    about="accuracy per class and per client over rounds, of global and local models; forgetting; feature norms",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="003 F3 F7, 004 F3",
)
