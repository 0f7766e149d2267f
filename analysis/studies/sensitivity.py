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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from analysis.shared.places import local_models
from analysis.store import Table, Variable
from analysis.studies.drift import REFERENCES, reference_of
from analysis.study import Arrays, Checked, Piece, Study, limit_setting, rounds_setting, setting, variable
from analysis.subjects import Run, Subject
from landscape.layout import Entry, Layout
from training.methods.fedfsa import LayerRadii, Measure
from training.rules.context import ClientContext
from training.rules.vectors import unit

MEASURES: tuple[Measure, ...] = get_args(Measure)


@dataclass(frozen=True)
class Settings(Checked):
    """How layers are perturbed, and what their movement is counted from."""

    rounds: str = rounds_setting("last")
    radius: float = setting(0.05, "of the perturbations", positive=True)
    layers: int | None = setting(
        None, "how many layers FedFSA would choose", least=1, absent="as the run, or the paper, does"
    )
    reference: str = setting(
        "sent",
        "the model W_g that movement is counted from: the one that was sent, or the global one",
        choices=REFERENCES,
    )
    clients: int | None = setting(None, "most participants looked at", least=1, absent="all of them")
    limit: int | None = limit_setting()


def rows(subject: Subject, settings: Settings) -> list[tuple[int, int]]:
    """(round, participant) of every local model that is looked at."""
    kept = local_models(subject, subject.select(settings.rounds))
    return [(round, client) for round, clients in kept.items() for client in clients[: settings.clients]]


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    (subject,) = subjects
    layers = len(Layout.of(subject.model).entries)
    planned = []
    for round, client in rows(subject, settings):
        reference_of(subject, settings.reference, round)  # better now than after an hour
        size = len(subject.examples("train", client)[1])
        passes = (4 + 2 * layers / 3) * min(size, settings.limit or size)
        planned.append(Piece(_key(round, client), passes, vectors=10, round=round, client=client))
    return planned


def _key(round: int, client: int) -> str:
    return f"round {round} client {client}"


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    (subject,) = subjects
    objective = subject.objective("train", piece.client, limit=settings.limit)
    entries = objective.layout.parameters
    theta = subject.local_points(piece.round)[piece.client].to(objective.dtype)
    reference = reference_of(subject, settings.reference, piece.round).to(objective.dtype)
    base, gradient = objective.loss_and_gradient(theta)
    e = settings.radius * unit(gradient)
    top, gradient_at = objective.loss_and_gradient(theta + e)
    before, far_slope = objective.loss_and_gradient(reference)
    away = reference - theta
    layout, rule = Layout.of(subject.model), LayerRadii(layers=layers_chosen(subject, settings))
    error = objective.evaluate(theta).standard_error if objective.population is not None else 0.0

    def each(value: Callable[[Entry], float]) -> NDArray[np.float64]:
        return np.asarray([value(entry) for entry in entries], dtype=np.float64)

    def alone(vector: Tensor, entry: Entry) -> Tensor:
        only = torch.zeros_like(vector)
        only[entry.start : entry.stop] = vector[entry.start : entry.stop]
        return only

    def product(a: Tensor, b: Tensor, entry: Entry) -> float:
        return float(alone(a, entry).double() @ b.double())

    return {
        "loss": np.asarray(base),
        "loss_error": np.asarray(error),
        "gradient_norm": np.asarray(float(gradient.double().norm())),
        "sam_rise": np.asarray(top - base),
        "global_sensitivity": np.asarray(abs(before - base)),
        "moved": each(lambda entry: product(away, away, entry)),
        "adaptive": each(lambda entry: _adaptive(away, entry, entries)),
        "rise": each(lambda entry: objective.loss(theta + settings.radius * unit(alone(gradient, entry))) - base),
        "removal": each(lambda entry: abs(top - objective.loss(theta + e - alone(e, entry)))),
        "first_order": each(lambda entry: abs(product(gradient_at, e, entry))),
        "global_first_order": each(lambda entry: abs(product(far_slope, away, entry))),
        "layer_gradient_norm": each(lambda entry: product(gradient, gradient, entry) ** 0.5),
        "chosen": np.stack([_chosen(layout, reference, theta, replace(rule, measure=name)) for name in MEASURES]),
    }


def _adaptive(away: Tensor, entry: Entry, entries: Sequence[Entry]) -> float:
    """The mean of |d| / ||d of its layer||; zero where the layer did not move, as FedSoL perturbs it not at all."""
    layer = [away[one.start : one.stop].double() for one in entries if one.layer == entry.layer]
    length = float(torch.cat(layer).norm())
    return float(away[entry.start : entry.stop].double().abs().mean()) / length if length else 0.0


def layers_chosen(subject: Subject, settings: Settings) -> int:
    """How many layers FedFSA chooses: by the settings, by the run if it is FedFSA's, or as the paper does."""
    own = subject.federation.method.perturbation if isinstance(subject, Run) else None
    rule = own if isinstance(own, LayerRadii) else LayerRadii()
    return rule.layers if settings.layers is None else settings.layers


def _chosen(layout: Layout, start: Tensor, end: Tensor, rule: LayerRadii) -> NDArray[np.int8]:
    """1 for the layers that FedFSA would perturb more in the client's next round."""
    context = ClientContext(layout, start[: layout.size], {}, {}, lr=0.0, momentum=0.0, steps=1, round=0)
    return rule.update_client(context, end[: layout.size])["chosen"].to(torch.int8).numpy()


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    entries = Layout.of(subject.model).entries
    looked = rows(subject, settings)
    each = partial(variable, found, [_key(round, client) for round, client in looked])
    by_layer, one = ("row", "layer"), ("row",)
    return {
        "layers": Table(
            {
                "round_of": Variable(one, np.asarray([round for round, _ in looked]), "communication round"),
                "client": Variable(one, np.asarray([client for _, client in looked]), "participant"),
                "layer": Variable(("layer",), np.asarray([entry.name for entry in entries]), "parameter tensor"),
                "entries": Variable(("layer",), np.asarray([e.stop - e.start for e in entries]), "number of weights"),
                "measure": Variable(("measure",), np.asarray(MEASURES), "how movement is compared between layers"),
                "loss": each("loss", one, "loss of the client's model on its own data"),
                "loss_error": each("loss_error", one, "its standard error, where a subset of the data was seen"),
                "gradient_norm": each("gradient_norm", one, "norm of its gradient"),
                "sam_rise": each("sam_rise", one, "L(W + e) - L(W), e = radius g / ||g||"),
                "global_sensitivity": each("global_sensitivity", one, "|L(W_g) - L(W)| on the client's data (eq. 9)"),
                "moved": each("moved", by_layer, "||w_j - w_g,j||^2 (eq. 11)"),
                "chosen": each("chosen", ("row", "measure", "layer"), "1 for the layers that FedFSA would choose"),
                "adaptive": each(
                    "adaptive", by_layer, "mean of |w_j - w_g,j| / ||w - w_g|| of its layer, FedSoL's radius"
                ),
                "rise": each("rise", by_layer, "rise of the loss with this layer alone perturbed by the radius"),
                "removal": each("removal", by_layer, "|L(W + e) - L(W + e without e_j)| (eq. 7)"),
                "first_order": each("first_order", by_layer, "|grad_j L(W + e) . e_j| (eq. 8)"),
                "global_first_order": each("global_first_order", by_layer, "|grad_j L(W_g) . (w_g,j - w_j)| (eq. 10)"),
                "layer_gradient_norm": each("layer_gradient_norm", by_layer, "||g_j||"),
            },
            {
                "radius": settings.radius,
                "layers": layers_chosen(subject, settings),
                "reference": settings.reference,
            },
        )
    }


STUDY = Study(
    name="sensitivity",
    about="layer by layer: movement in local training, loss under perturbation, FedFSA's choice, FedSoL's radius",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="000 eqs 7-11, 004 F8",
)
