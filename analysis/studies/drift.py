"""How far clients stray: from the global model, from each other, layer by layer, and against a proximal loss.

A checkpoint of round t holds the global model w^t, the participants' models w_k that it was made of, and the point
that was sent to them, where they began. Distances are to w^t (FedSoL, Figure 10); updates D_k = w_k - (what was sent)
and the proximal loss count from the point that was sent, unless the settings say otherwise.

The cosine that FedSoL's Figure 9b shows is taken along the local steps: train with record = ["proximal_cosine"], and
study `training` has it. Here is only the angle at the end of them, `endpoint_cosine`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import torch
import xarray as xr
from pydantic import Field
from torch import Tensor

from analysis.shared.model_points import Reference, find_reference, list_participants, load_participants
from analysis.shared.outputs import compute_outputs
from analysis.study import Datasets, Floats, Limit, Piece, Rounds, Study, scalar, variable
from analysis.subjects import Subject
from landscape import Objective
from landscape.geometry.directions import cosine_or_nan, distance, norm
from landscape.layout import Layout
from landscape.losses.batches import join
from landscape.results import standard_error
from landscape.runtime.device import to_float64
from training.rules.loss_terms import divergence
from training.settings import Positive, settings

Points = Mapping[int, Tensor]  # by client
PROXIMAL_LOSS = "KL(softmax(z_ref / tau) || softmax(z_k / tau)) on the client's own data, tau = {tau:g}"
ANGLE = "cosine of the proximal gradient at w_k and the whole way back, ref - w_k"
AVERAGED = {  # variables whose mean over participants, or over pairs of them, is part of the answer
    "distance": "||w_k - w||",
    "update_norm": "||D_k||",
    "update_cosine": "cosine of D_k and the mean update",
    "pair_distance": "||w_k - w_j||",
    "pair_cosine": "cosine of D_k and D_j",
    "proximal_loss": PROXIMAL_LOSS,
    "endpoint_cosine": ANGLE,
}


@settings
class Settings:
    """What local models are compared with."""

    rounds: Rounds = "all"
    reference: Reference = Field(default="sent", description="of the proximal loss: what was sent, or the global model")
    proximal: bool = Field(default=True, description="measure the proximal loss")
    tau: Positive = Field(default=3.0, description="its temperature")
    limit: Limit = None


def make_proximal_objective(
    subject: Subject, reference: Tensor, client: int, tau: float, limit: int | None
) -> Objective:
    """FedSoL's L_p(w) = mean KL(softmax(z_ref / tau) || softmax(z(w) / tau)) over a client's examples."""
    plain = subject.objective("train", client, limit=limit)
    inputs, _ = join(plain.chunks)
    logits = compute_outputs(subject, reference, inputs).logits
    return subject.make_objective(
        (inputs, logits), lambda outputs, targets: divergence(targets, outputs, tau), plain.drawn
    )


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece for each round."""
    rounds = subject.select(settings.rounds)
    kept, planned = list_participants(subject, rounds), []
    for round in kept:
        find_reference(subject, settings.reference, round)  # better now than after an hour
    for round in rounds:
        sizes = [subject.count("train", client, settings.limit) for client in kept.get(round, ())]
        passes = 1.5 * sum(sizes) if settings.proximal else 0.0
        planned.append(Piece(round, passes=passes, vectors=4 + 2 * len(sizes)))
    return planned


def measure(subject: Subject, settings: Settings, piece: Piece, earlier: Datasets) -> xr.Dataset:
    """The participants' models of one round, if there are any, beside the global model."""
    layout, points = Layout.of(subject.model), load_participants(subject, piece.round)
    w, sent = subject.point(piece.round)[: layout.size], subject.sent_point(piece.round)
    start = torch.full_like(w, math.nan) if sent is None else sent[: layout.size]
    found = {
        "norm": scalar(norm(w), "norm of the global model's weights"),
        "moved_global": scalar(distance(w, start), "||w - what was sent||"),
    }
    about = {"reference": settings.reference}
    if not points:
        return xr.Dataset(found, attrs=about)
    models = {client: point[: layout.size] for client, point in points.items()}
    updates = {client: model - start for client, model in models.items()}
    found |= _compare_with_global(models, updates, subject.shares(list(points)), w, layout)
    found |= _compare_pairs(models, updates)
    if settings.proximal:
        found |= _measure_proximal(subject, settings, piece.round, points, layout.size)
    coords = {"client": list(points), "layer": [entry.name for entry in layout.entries]}
    return xr.Dataset(found | _average(found, settings), coords, about)


def _compare_with_global(
    models: Points, updates: Points, shares: Mapping[int, float], w: Tensor, layout: Layout
) -> dict[str, xr.Variable]:
    """Every participant's model beside the global one, and its update beside the mean of all."""
    mean = sum((shares[client] * update for client, update in updates.items()), torch.zeros_like(w))
    by_layer = [
        [distance(layout.view(model, entry), layout.view(w, entry)) for entry in layout.entries]
        for model in models.values()
    ]
    far = [distance(model, w) for model in models.values()]
    norms, lengths = ([norm(one) for one in some.values()] for some in (models, updates))
    about = "||D_k||, D_k = w_k - what was sent; NaN where that is not on record"
    angles = [cosine_or_nan(update, mean) for update in updates.values()]
    return {
        "distance": variable("client", far, "||w_k - w||, w the global model of the round"),
        "layer_distance": variable(("client", "layer"), by_layer, "||w_k - w|| within the tensor"),
        "model_norm": variable("client", norms, "||w_k||"),
        "update_norm": variable("client", lengths, about),
        "update_cosine": variable("client", angles, "cosine of D_k and the mean update sum p_k D_k"),
    }


def _compare_pairs(models: Points, updates: Points) -> dict[str, xr.Variable]:
    """Every two participants' models; nothing where there is only one."""
    pairs = list(itertools.combinations(models, 2))
    if not pairs:
        return {}
    first, second = np.asarray(pairs, dtype=np.int64).T
    distances = [distance(models[a], models[b]) for a, b in pairs]
    cosines = [cosine_or_nan(updates[a], updates[b]) for a, b in pairs]
    return {
        "first": variable("pair", first, "participant"),
        "second": variable("pair", second, "another participant"),
        "pair_distance": variable("pair", distances, "||w_k - w_j||"),
        "pair_cosine": variable("pair", cosines, "cosine of the updates D_k and D_j"),
    }


def _measure_proximal(
    subject: Subject, settings: Settings, round: int, points: Points, size: int
) -> dict[str, xr.Variable]:
    """L_p of every participant's model, and the angle of its whole update with the proximal gradient there."""
    about = {
        "proximal_loss": PROXIMAL_LOSS.format(tau=settings.tau),
        "proximal_error": "its standard error, where a subset of the data was seen",
        "proximal_gradient_norm": "norm of its gradient at w_k",
        "endpoint_cosine": ANGLE,
        "half_square": "||w_k - ref||^2 / 2, FedProx's proximal loss",
    }
    rows = []
    for client, point in points.items():
        reference = find_reference(subject, settings.reference, round)
        objective = make_proximal_objective(subject, reference, client, settings.tau, settings.limit)
        theta = point.to(objective.dtype)
        evaluation, gradient = objective.evaluate(theta), objective.gradient(theta)[:size]
        if torch.equal(theta, reference):
            gradient = torch.zeros_like(gradient)  # by definition; an angle of rounding errors means nothing
        away = (theta - reference)[:size]
        error, angle = evaluation.standard_error or 0.0, cosine_or_nan(-away, gradient)
        half_square = 0.5 * float(to_float64(away).square().sum())
        rows.append((evaluation.loss, error, norm(gradient), angle, half_square))
    columns = zip(about.items(), np.asarray(rows).T, strict=True)
    return {name: variable("client", column, text) for (name, text), column in columns}


def _average(found: Mapping[str, xr.Variable], settings: Settings) -> dict[str, xr.Variable]:
    """Means over participants with their standard errors, and means over pairs; NaN where there are no pairs."""
    means = {}
    for name, long_name in AVERAGED.items():
        text, pair = f"mean of {long_name.format(tau=settings.tau)}", name.startswith("pair")
        if name in found or pair:
            values: Floats = found[name].values if name in found else np.full(1, math.nan)
            means[f"mean_{name}"] = scalar(float(values.mean()), text)
            if not pair:  # pairs that share a client are not independent
                means[f"mean_{name}_error"] = scalar(standard_error(values), "its standard error over participants")
    return means


STUDY = Study("drift", __doc__, Settings, pieces, measure, papers="004 F9 F10, 002 F8")
