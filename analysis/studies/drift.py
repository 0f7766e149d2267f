"""How far clients stray: from the global model, from each other, layer by layer, and against a proximal loss.

A checkpoint of round t holds the global model w^t, the participants' models w_k that it was made of, and the point
that was sent to them, where they began. Distances are to w^t (FedSoL, Figure 10); updates D_k = w_k - (what was sent)
and the proximal loss count from the point that was sent, unless the settings say otherwise.

The cosine that FedSoL's Figure 9b shows is taken along the local steps: train with record = ["proximal_cosine"], and
study `training` has it. Here is only the angle at the end of them, `endpoint_cosine`.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from analysis.shared.places import local_models, participants
from analysis.store import Table, Variable
from analysis.study import Arrays, Checked, Piece, Study, limit_setting, rounds_setting, setting, variable
from analysis.subjects import Subject
from landscape import Objective, directions
from landscape.layout import Layout
from landscape.objectives.batches import join
from landscape.results import standard_error
from training.rules.loss_terms import divergence

REFERENCES = ("sent", "global")


@dataclass(frozen=True)
class Settings(Checked):
    """What local models are compared with."""

    rounds: str = rounds_setting("all")
    reference: str = setting(
        "sent", "what the proximal loss compares with: the point that was sent, or the global model", choices=REFERENCES
    )
    proximal: bool = setting(True, "measure the proximal loss")
    tau: float = setting(3.0, "its temperature", positive=True)
    limit: int | None = limit_setting()


def cosine(a: Tensor, b: Tensor) -> float:
    """The cosine of two vectors; NaN with a zero vector."""
    return directions.cosine(a, b) if bool(a.any()) and bool(b.any()) else math.nan


def distance(a: Tensor, b: Tensor) -> float:
    """||a - b|| in float64."""
    return float((a.double() - b.double()).norm())


def reference_of(subject: Subject, wanted: str, round: int) -> Tensor:
    """What local models are compared with.

    wanted: "sent", the point at which they began, which must be on record; or "global", the model made of them.
    """
    if wanted == "global":
        return subject.point(round)
    found = subject.sent_point(round)
    if found is None:
        kept = [str(one) for one in subject.rounds if subject.sent_point(one) is not None]
        raise ValueError(
            f"{subject.name}: round {round} does not keep the point that was sent; rounds that do: "
            f'{", ".join(kept) or "none"}. Train with checkpoints.keep_locals = "all" (runs of earlier versions never '
            'kept it), or set reference = "global" to compare with the model that was made of the local ones'
        )
    return found


def proximal_objective(subject: Subject, reference: Tensor, client: int, tau: float, limit: int | None) -> Objective:
    """FedSoL's L_p(w) = mean KL(softmax(z_ref / tau) || softmax(z(w) / tau)) over a client's examples."""
    plain = subject.objective("train", client, limit=limit)
    inputs, _ = join(plain.chunks)
    return Objective(
        subject.model,
        (inputs, _outputs(subject, reference, inputs)),
        loss=lambda outputs, targets: divergence(targets, outputs, tau),
        dtype=plain.dtype,
        batchnorm=subject.policy,
        memory=subject.limits.memory,
        workers=subject.limits.workers,
        chunk_size=subject.limits.chunk_size,
        drawn=plain.drawn,
    )


def _outputs(subject: Subject, theta: Tensor, inputs: Tensor) -> Tensor:
    network = copy.deepcopy(subject.model).eval().to(inputs.dtype)
    layout = Layout.of(network, statistics=subject.policy == "interpolated")
    tensors = layout.unflatten(theta.to(inputs.dtype))
    with torch.no_grad():
        parts = torch.split(inputs, subject.limits.chunk_size)
        return torch.cat([functional_call(network, tensors, (part,)) for part in parts])


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    (subject,) = subjects
    rounds = subject.select(settings.rounds)
    kept, planned = local_models(subject, rounds), []
    for round in kept:
        reference_of(subject, settings.reference, round)  # better now than after an hour
    for round in rounds:
        sizes = [len(subject.examples("train", client)[1]) for client in kept.get(round, ())]
        passes = 1.5 * sum(min(size, settings.limit or size) for size in sizes) if settings.proximal else 0.0
        planned.append(Piece(f"round {round}", passes, vectors=4 + 2 * len(sizes), round=round))
    return planned


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    (subject,) = subjects
    layout = Layout.of(subject.model)
    w = subject.point(piece.round)[: layout.size]
    points = participants(subject, piece.round)
    clients, models = list(points), {client: point[: layout.size] for client, point in points.items()}
    start = subject.sent_point(piece.round)
    start = None if start is None else start[: layout.size]
    updates = {client: math.nan * w if start is None else model - start for client, model in models.items()}
    shares = subject.shares(clients) if clients else {}
    mean = sum((shares[client] * update for client, update in updates.items()), torch.zeros_like(w))
    pairs = list(itertools.combinations(clients, 2))
    arrays: Arrays = {
        "norm": np.asarray(float(w.double().norm())),
        "moved_global": np.asarray(math.nan if start is None else distance(w, start)),
        "client": np.asarray(clients, dtype=np.int64),
        "distance": _each(distance(model, w) for model in models.values()),
        "model_norm": _each(float(model.double().norm()) for model in models.values()),
        "update_norm": _each(float(update.double().norm()) for update in updates.values()),
        "update_cosine": _each(math.nan if start is None else cosine(update, mean) for update in updates.values()),
        "layer_distance": _each(
            [distance(layout.view(model, entry), layout.view(w, entry)) for entry in layout.entries]
            for model in models.values()
        ).reshape(len(models), len(layout.entries)),
        "pair": np.asarray(pairs, dtype=np.int64).reshape(-1, 2),
        "pair_distance": _each(distance(models[first], models[second]) for first, second in pairs),
        "pair_cosine": _each(
            math.nan if start is None else cosine(updates[first], updates[second]) for first, second in pairs
        ),
    }
    return arrays | (_proximal(subject, settings, piece.round, points, layout.size) if settings.proximal else {})


def _proximal(subject: Subject, settings: Settings, round: int, points: Mapping[int, Tensor], size: int) -> Arrays:
    """L_p of every participant's model, and the angle of its whole update with the proximal gradient there."""
    names = ("proximal_loss", "proximal_error", "proximal_gradient_norm", "endpoint_cosine", "half_square")
    rows = []
    for client, point in points.items():
        reference = reference_of(subject, settings.reference, round)
        objective = proximal_objective(subject, reference, client, settings.tau, settings.limit)
        theta = point.to(objective.dtype)
        evaluation, gradient = objective.evaluate(theta), objective.gradient(theta)[:size]
        if torch.equal(theta, reference):
            gradient = torch.zeros_like(gradient)  # by definition; an angle of rounding errors means nothing
        away = (theta - reference)[:size]
        error = 0.0 if evaluation.standard_error is None else evaluation.standard_error
        length, square = float(gradient.double().norm()), float(away.double().square().sum())
        rows.append((evaluation.loss, error, length, cosine(-away, gradient), 0.5 * square))
    columns = _each(rows).reshape(-1, len(names)).T
    return dict(zip(names, columns, strict=True))


def _each(values: Any) -> NDArray[np.float64]:
    return np.asarray(list(values), dtype=np.float64)


def _mean(values: NDArray[Any]) -> tuple[float, float]:
    """Mean and standard error over participants, NaN for none."""
    return (float(values.mean()), standard_error(values)) if len(values) else (math.nan, math.nan)


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    rounds = subject.select(settings.rounds)
    keys = [f"round {round}" for round in rounds]
    every = partial(variable, found, keys)

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([found[key][name] for key in keys])

    def round_of(name: str) -> Variable:
        counts = [len(found[key][name]) for key in keys]
        return Variable(("row",), np.repeat(rounds, counts), "communication round")

    def row(name: str, long_name: str) -> Variable:
        return Variable(("row",), joined(name), long_name)

    names = np.asarray([entry.name for entry in Layout.of(subject.model).entries])
    clients = {
        "round_of": round_of("client"),
        "client": row("client", "participant"),
        "layer": Variable(("layer",), names, "parameter tensor"),
        "distance": row("distance", "||w_k - w||, w the global model of the round"),
        "layer_distance": Variable(("row", "layer"), joined("layer_distance"), "||w_k - w|| within the tensor"),
        "model_norm": row("model_norm", "||w_k||"),
        "update_norm": row("update_norm", "||D_k||, D_k = w_k - what was sent; NaN where that is not on record"),
        "update_cosine": row("update_cosine", "cosine of D_k and the mean update sum p_k D_k"),
    }
    averaged = {
        "distance": "||w_k - w||",
        "update_norm": "||D_k||",
        "update_cosine": "cosine of D_k and the mean update",
        "pair_distance": "||w_k - w_j||",
        "pair_cosine": "cosine of D_k and D_j",
    }
    if settings.proximal:
        loss = f"KL(softmax(z_ref / tau) || softmax(z_k / tau)) on the client's own data, tau = {settings.tau:g}"
        angle = "cosine of the proximal gradient at w_k and the whole way back, ref - w_k"
        clients |= {
            "proximal_loss": row("proximal_loss", loss),
            "proximal_error": row("proximal_error", "its standard error, where a subset of the data was seen"),
            "proximal_gradient_norm": row("proximal_gradient_norm", "norm of its gradient at w_k"),
            "endpoint_cosine": row("endpoint_cosine", angle),
            "half_square": row("half_square", "||w_k - ref||^2 / 2, FedProx's proximal loss"),
        }
        averaged |= {"proximal_loss": loss, "endpoint_cosine": angle}
    pairs = {
        "round_of": round_of("pair_distance"),
        "first": Variable(("row",), joined("pair")[:, 0], "participant"),
        "second": Variable(("row",), joined("pair")[:, 1], "another participant"),
        "pair_distance": row("pair_distance", "||w_k - w_j||"),
        "pair_cosine": row("pair_cosine", "cosine of the updates D_k and D_j"),
    }
    over_rounds = {
        "round": Variable(("round",), np.asarray(rounds), "communication round"),
        "norm": every("norm", ("round",), "norm of the global model's weights"),
        "moved_global": every("moved_global", ("round",), "||w - what was sent||"),
    }
    for name, long_name in averaged.items():
        means = np.asarray([_mean(found[key][name]) for key in keys]).reshape(-1, 2)
        over_rounds[name] = Variable(("round",), means[:, 0], f"mean of {long_name}")
        if not name.startswith("pair"):  # pairs that share a client are not independent
            over_rounds[f"{name}_error"] = Variable(("round",), means[:, 1], "its standard error over participants")
    about = {"reference": settings.reference}
    return {"rounds": Table(over_rounds, about), "clients": Table(clients, about), "pairs": Table(pairs, about)}


STUDY = Study(
    name="drift",
    about="how far local models stray from the global one and from each other; proximal loss; parameter norm",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="004 F9 F10, 002 F8",
)
