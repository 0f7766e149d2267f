"""Which layers matter: how far each moves in local training, and how the loss answers when it is perturbed.

A layer is one parameter tensor, as in FedFSA's code. For participant i, its model W and W_g, which it was sent:
    moved          ||w_j - w_g,j||^2, what FedFSA ranks layers by (eq. 11)
    removal        |L_i(W + e) - L_i(W + e without e_j)|, e = radius g / ||g|| (eq. 7)
    first_order    |grad_j L_i(W + e) . e_j|, its approximation (eq. 8)
    global_first_order  |grad_j L_i(W_g) . (w_g,j - w_j)| (eq. 10)
    rise           L_i(W + radius g_j / ||g_j||) - L_i(W), layer j alone perturbed by the whole radius
    adaptive       mean of |w_j - w_g,j| / ||w - w_g||, FedSoL's radius (eq. 11 there, Figure 8); the norm is over the
                   layer in the usual sense, weight and bias together
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from analysis.shared.model_points import Reference, find_reference, list_participants
from analysis.study import Clients, Datasets, Floats, Limit, Piece, Rounds, Study, scalar, variable
from analysis.subjects import Run, Subject
from landscape.geometry.directions import norm
from landscape.layout import Entry, Layout
from landscape.runtime.device import to_float64
from training.methods.fedfsa import LayerRadii, Measure
from training.rules.context import ClientContext
from training.rules.vectors import unit
from training.settings import Count, Positive, settings

MEASURES: tuple[Measure, ...] = get_args(Measure)


@settings
class Settings:
    """How layers are perturbed, and what their movement is counted from."""

    rounds: Rounds = "last"
    radius: Positive = Field(default=0.05, description="of the perturbations")
    layers: Count | None = Field(default=None, description="layers FedFSA would choose; none: as the run or paper")
    reference: Reference = Field(default="sent", description="the model W_g that movement is counted from")
    clients: Clients = None
    limit: Limit = None


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece for each participant's model."""
    layers, planned = len(Layout.of(subject.model).entries), []
    for round, clients in list_participants(subject, subject.select(settings.rounds), settings.clients).items():
        find_reference(subject, settings.reference, round)  # better now than after an hour
        for client in clients:
            passes = (4 + 2 * layers / 3) * subject.count("train", client, settings.limit)
            planned.append(Piece(round, client, passes=passes, vectors=10))
    return planned


def measure(subject: Subject, settings: Settings, piece: Piece, earlier: Datasets) -> xr.Dataset:
    """All layers of one participant's model."""
    assert piece.client is not None
    objective = subject.objective("train", piece.client, limit=settings.limit)
    entries = objective.layout.parameters
    theta = subject.local_points(piece.round)[piece.client].to(objective.dtype)
    reference = find_reference(subject, settings.reference, piece.round).to(objective.dtype)
    base, gradient = objective.loss_and_gradient(theta)
    e = settings.radius * unit(gradient)
    top, gradient_at = objective.loss_and_gradient(theta + e)
    before, far_slope = objective.loss_and_gradient(reference)
    away = reference - theta
    error = (objective.evaluate(theta).standard_error or 0.0) if objective.population is not None else 0.0

    def multiply(a: Tensor, b: Tensor) -> Floats:
        return np.asarray([float(to_float64(_keep_layer(a, entry)) @ to_float64(b)) for entry in entries])

    rises = [objective.loss(theta + settings.radius * unit(_keep_layer(gradient, entry))) - base for entry in entries]
    removals = [abs(top - objective.loss(theta + e - _keep_layer(e, entry))) for entry in entries]
    adaptive = [_measure_adaptive(away, entry, entries) for entry in entries]
    chosen, slopes = _choose_layers(subject, settings, reference, theta), abs(multiply(far_slope, away))
    found = {
        "loss": scalar(base, "loss of the client's model on its own data"),
        "loss_error": scalar(error, "its standard error, where a subset of the data was seen"),
        "gradient_norm": scalar(norm(gradient), "norm of its gradient"),
        "sam_rise": scalar(top - base, "L(W + e) - L(W), e = radius g / ||g||"),
        "global_sensitivity": scalar(abs(before - base), "|L(W_g) - L(W)| on the client's data (eq. 9)"),
        "moved": variable("layer", multiply(away, away), "||w_j - w_g,j||^2 (eq. 11)"),
        "adaptive": variable("layer", adaptive, "mean of |w_j - w_g,j| / ||w - w_g|| of its layer, FedSoL's radius"),
        "rise": variable("layer", rises, "rise of the loss with this layer alone perturbed by the radius"),
        "removal": variable("layer", removals, "|L(W + e) - L(W + e without e_j)| (eq. 7)"),
        "first_order": variable("layer", abs(multiply(gradient_at, e)), "|grad_j L(W + e) . e_j| (eq. 8)"),
        "global_first_order": variable("layer", slopes, "|grad_j L(W_g) . (w_g,j - w_j)| (eq. 10)"),
        "layer_gradient_norm": variable("layer", multiply(gradient, gradient) ** 0.5, "||g_j||"),
        "chosen": variable(("measure", "layer"), chosen, "whether FedFSA would choose the layer"),
    }
    coords = {
        "layer": [entry.name for entry in entries],
        "entries": variable("layer", [entry.stop - entry.start for entry in entries], "number of weights"),
        "measure": variable("measure", MEASURES, "how movement is compared between layers"),
    }
    about = {"radius": settings.radius, "layers": count_chosen(subject, settings), "reference": settings.reference}
    return xr.Dataset(found, coords, about)


def _keep_layer(vector: Tensor, entry: Entry) -> Tensor:
    """A vector with all other layers set to zero."""
    only = torch.zeros_like(vector)
    only[entry.start : entry.stop] = vector[entry.start : entry.stop]
    return only


def _measure_adaptive(away: Tensor, entry: Entry, entries: Sequence[Entry]) -> float:
    """The mean of |d| / ||d of its layer||; zero where the layer did not move, as FedSoL perturbs it not at all."""
    layer = [to_float64(away[one.start : one.stop]) for one in entries if one.layer == entry.layer]
    length = float(torch.cat(layer).norm())
    return float(to_float64(away[entry.start : entry.stop]).abs().mean()) / length if length else 0.0


def count_chosen(subject: Subject, settings: Settings) -> int:
    """How many layers FedFSA chooses: by the settings, by the run if it is FedFSA's, or as the paper does."""
    own = subject.federation.method.perturbation if isinstance(subject, Run) else None
    rule = own if isinstance(own, LayerRadii) else LayerRadii()
    return rule.layers if settings.layers is None else settings.layers


def _choose_layers(subject: Subject, settings: Settings, start: Tensor, end: Tensor) -> NDArray[np.bool_]:
    """The layers that FedFSA would perturb more in the client's next round (measures, layers)."""
    layout, rule = Layout.of(subject.model), LayerRadii(layers=count_chosen(subject, settings))
    context = ClientContext(layout, start[: layout.size], {}, {}, lr=0.0, momentum=0.0, steps=1, round=0)
    chosen = [replace(rule, measure=name).update_client(context, end[: layout.size])["chosen"] for name in MEASURES]
    return torch.stack(chosen).bool().cpu().numpy()


STUDY = Study("sensitivity", __doc__, Settings, pieces, measure, papers="000 eqs 7-11, 004 F8")
