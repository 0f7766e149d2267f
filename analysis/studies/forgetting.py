"""What is known and what is forgotten: accuracy per class and per client over rounds, of global and of local models.

Counts are exact whole numbers; accuracies are their quotients. (FedSAM/FedASAM, Figures 3 and 7; FedSoL, Figure 3;
the forgetting measure is that of FedNTD, Lee et al. 2022.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from analysis.shared.model_points import load_model, load_participants
from analysis.shared.outputs import judge
from analysis.study import Clients, Datasets, Floats, Limit, Model, Piece, Rounds, Seed, Split, Study, variable
from analysis.subjects import Subject
from training.settings import settings

NORMS = (("feature_norm", "mean L2 norm of what enters the classifier"), ("output_norm", "mean L2 norm of the logits"))
FORMULA = "max over earlier rounds (from 1) of accuracy, minus accuracy"


@settings
class Settings:
    """Whose accuracy is measured, and on which data."""

    rounds: Rounds = "all"
    model: Model = "final"
    split: Split = Field(default="test", description="everyone's data, counted by class")
    client_split: Split = Field(default="train", description="each client's own data")
    local: bool = Field(default=True, description="the participants' models too, at rounds that keep them")
    clients: Clients = None
    limit: Limit = None
    seed: Seed = 0


def divide(part: NDArray[np.number], total: NDArray[np.number]) -> Floats:
    """part / total, NaN where total is zero."""
    nothing = np.full(np.broadcast_shapes(part.shape, total.shape), np.nan)
    quotient: Floats = np.divide(part, total, out=nothing, where=total > 0)
    return quotient


def measure_forgetting(accuracy: xr.DataArray) -> xr.DataArray:
    """max over earlier rounds t >= 1 of A(t), minus A(T), for every round T; NaN where nothing came before.

    The untrained model (round 0) knows nothing that could be forgotten: a constant guess has one class right.

    accuracy: with the dimension `round` first.
    """
    earlier = accuracy.where(accuracy["round"] >= 1).shift(round=1)
    return earlier.copy(data=np.fmax.accumulate(earlier.values, axis=0)) - accuracy


def average_groups(values: Tensor, groups: Tensor, count: int) -> Floats:
    """Mean of values (n,) in each group; NaN for an empty one."""
    groups = groups.cpu()  # as the norms are
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, groups, values.double())
    return divide(sums.numpy(), torch.bincount(groups, minlength=count).numpy())


def name_predictions(subject: Subject) -> str:
    """What has a true class: examples, or pixels where targets are label maps."""
    return "examples" if subject.task.targets == "label" else "pixels"


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece for the global model of each round, and one for each participant's model."""
    rounds = subject.select_with(settings.rounds, settings.model)
    count = subject.count(settings.split, limit=settings.limit)
    sizes = {k: subject.count(settings.client_split, k) for k in subject.clients[: settings.clients]}
    planned = []
    for round in rounds:
        planned.append(Piece(round, passes=(count + sum(sizes.values())) / 3))  # a third of a gradient each
        for client in load_participants(subject, round, settings.clients) if settings.local else ():
            planned.append(Piece(round, client, passes=(count + subject.count("train", client)) / 3))
    return planned


def measure(subject: Subject, settings: Settings, piece: Piece, earlier: Datasets) -> xr.Dataset:
    """Counts of one model; of a global model also the norms of its features and outputs."""
    inputs, labels, _ = subject.draw_examples(settings.split, None, settings.limit, settings.seed, "forgetting")
    classes = np.arange(subject.classes)
    if piece.client is not None:
        theta = load_model(subject, piece)
        return xr.Dataset(_measure_local(subject, settings, theta, piece.client, inputs, labels), {"class": classes})
    theta = subject.point(piece.round, settings.model)
    found, clients = _measure_global(subject, theta, inputs, labels), subject.clients[: settings.clients]
    coords = {
        "class": variable("class", classes, "true class"),
        "predicted": variable("predicted", classes, "class that the model gives"),
        **({"client": clients} if clients else {}),
    }
    return xr.Dataset(found | (_measure_clients(subject, settings, theta, clients) if clients else {}), coords)


def _measure_global(subject: Subject, theta: Tensor, inputs: Tensor, labels: Tensor) -> dict[str, xr.Variable]:
    """The global model on everyone's data, class by class."""
    judged, unit = judge(subject, theta, inputs, labels), name_predictions(subject)
    confusion = judged.confusion
    right, total = np.diag(confusion), confusion.sum(axis=1)
    norms = [average_groups(one, labels, subject.classes) for one in judged.norms or ()]
    found = {
        "confusion": variable(("class", "predicted"), confusion, f"{unit} of a class that are taken for another"),
        "correct": variable("class", right, f"{unit} of each class that are right"),
        "accuracy": variable("class", divide(right, total), "accuracy on each class, a fraction"),
        "accuracy_all": variable((), divide(right.sum(), total.sum()), "accuracy on all of them"),
    }
    return found | {name: variable("class", own, about) for (name, about), own in zip(NORMS, norms, strict=False)}


def _measure_clients(
    subject: Subject, settings: Settings, theta: Tensor, clients: Sequence[int]
) -> dict[str, xr.Variable]:
    """The global model on each client's data."""
    draws = (
        subject.draw_examples(settings.client_split, client, settings.limit, settings.seed, "forgetting", client)
        for client in clients
    )
    judged = [judge(subject, theta, inputs, labels) for inputs, labels, _ in draws]
    right, total = ([int(of(one.confusion)) for one in judged] for of in (np.trace, np.sum))
    means = [[float(norms.mean()) for norms in one.norms or ()] for one in judged]
    data = f"{settings.client_split} {name_predictions(subject)} of each client"
    accuracy, norms = divide(np.asarray(right), np.asarray(total)), np.asarray(means).T
    found = {
        "client_correct": variable("client", right, f"{data} that the global model has right"),
        "client_total": variable("client", total, data),
        "client_accuracy": variable("client", accuracy, "accuracy of the global model on each client, a fraction"),
    }
    named = zip(NORMS, norms, strict=False)
    return found | {f"client_{name}": variable("client", own, about) for (name, about), own in named}


def _measure_local(
    subject: Subject, settings: Settings, theta: Tensor, client: int, inputs: Tensor, labels: Tensor
) -> dict[str, xr.Variable]:
    """A participant's model on everyone's data and on its own."""
    counts = judge(subject, theta, inputs, labels).confusion
    right, total = np.diag(counts), counts.sum(axis=1)
    own = judge(subject, theta, *subject.examples("train", client)).confusion
    data, whose, unit = f"everyone's {settings.split} data", "accuracy of the client's model", name_predictions(subject)
    return {
        "local_correct": variable("class", right, f"{unit} that the client's model has right, of {data}"),
        "local_accuracy": variable("class", divide(right, total), f"{whose} per class on {data}"),
        "local_accuracy_all": variable((), divide(right.sum(), total.sum()), f"{whose} on {data}"),
        "own_accuracy": variable((), divide(np.trace(own), own.sum()), f"{whose} on its own training data"),
        "own_total": variable("class", own.sum(axis=1), f"training {unit} of each class that the client has"),
    }


def derive(subject: Subject, settings: Settings, answer: xr.Dataset) -> xr.Dataset:
    """Add how many examples there are, and how much of them is forgotten."""
    total = answer["confusion"].isel(round=0).sum("predicted").values
    found = {"total": variable("class", total, f"{settings.split} {name_predictions(subject)} of each class")}
    found |= _describe_forgetting(answer["accuracy"], "class", "")
    if "client_total" in answer:
        found["client_total"] = answer["client_total"].isel(round=0, drop=True).variable
        found |= _describe_forgetting(answer["client_accuracy"], "client", "client_")
    return answer.assign(found)


def _describe_forgetting(accuracy: xr.DataArray, of: str, prefix: str) -> dict[str, xr.Variable]:
    lost = measure_forgetting(accuracy)
    mean = lost.mean(of)
    return {
        f"forgotten_{of}": variable(("round", of), lost, f"{FORMULA}; negative: better than ever"),
        f"{prefix}forgetting": variable("round", mean, f"mean over each {of} of: {FORMULA}"),
    }


STUDY = Study("forgetting", __doc__, Settings, pieces, measure, derive, papers="003 F3 F7, 004 F3")
