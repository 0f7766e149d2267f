"""Sums over the participants of a round, taken as their results arrive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from training.clients.local_training import ClientResult, DivergenceError
from training.executors.base import Broadcast
from training.recording import summarise
from training.rules.context import RoundReport
from training.rules.vectors import Vectors, effective_steps


@dataclass
class RoundAggregate:
    """Running sums over the participants of a round, in float64 and in cohort order; no list of models is kept."""

    sent: Broadcast
    momentum: float  # of local SGD
    weights: Mapping[int, float]  # participant -> p_k
    private: slice | None = None  # coordinates that every client keeps to itself

    def __post_init__(self) -> None:
        self.start = self.sent.start.double()
        zero = torch.zeros_like(self.start)
        self.displacement, self.pseudo, self.directions = zero.clone(), zero.clone(), zero.clone()
        self.statistics = torch.zeros_like(self.sent.statistics, dtype=torch.float64)
        self.uploads: Vectors = {}
        self.totals: Vectors = {}
        self.changes: Vectors = {}
        self.states: Vectors = {}
        self.series: list[dict[str, list[float]]] = []
        self.drift = self.loss = self.effective_steps = 0.0
        self.gradients = self.moved = 0

    def add(self, result: ClientResult, before: Mapping[str, Tensor]) -> None:
        """Add the result of a participant; `before`: its client vectors before the round."""
        p, sent = self.weights[result.client], self.sent
        D = result.w - self.start
        if self.private is not None:
            D[self.private] = 0.0
        length = float(D.norm())
        if not math.isfinite(length):
            raise DivergenceError(sent.round + 1, result.client, result.steps, sent.lr)
        a = float(effective_steps(result.steps, self.momentum))
        self.displacement.add_(D, alpha=p)
        self.pseudo.sub_(D, alpha=p / (sent.lr * a))
        self.effective_steps += p * a
        if length:
            self.directions.add_(D, alpha=1 / length)
            self.moved += 1
        self.drift += length
        self.loss += p * result.loss
        self.gradients += result.gradients
        self.series.append(result.recorded)
        self.statistics += p * result.statistics
        for name, vector in result.uploads.items():
            self.uploads[name] = self.uploads.get(name, 0.0) + p * vector.double()
            self.totals[name] = self.totals.get(name, 0.0) + vector.double()
        for name, vector in result.state.items():
            change = vector.double() - before[name].double()
            self.changes[name] = self.changes.get(name, 0.0) + change
            self.states[name] = self.states.get(name, 0.0) + p * vector.double()

    def report(self, model: Tensor, clients: int) -> RoundReport:
        """Make the report of the round, in the precision of the run.

        model: the server's, w^t.
        clients: N, the number of all clients.
        """
        like = self.sent.start.dtype
        return RoundReport(
            model=model,
            start=self.sent.start,
            displacement=self.displacement.to(like),
            pseudo_gradient=self.pseudo.to(like),
            effective_steps=self.effective_steps,
            uploads={name: vector.to(like) for name, vector in self.uploads.items()},
            changes={name: vector.to(like) for name, vector in self.changes.items()},
            states={name: vector.to(like) for name, vector in self.states.items()},
            drift=self.drift / len(self.weights),
            participants=len(self.weights),
            clients=clients,
            lr=self.sent.lr,
            round=self.sent.round,
            totals={name: vector.to(like) for name, vector in self.totals.items()},
        )

    @property
    def recorded(self) -> dict[str, dict[str, float | list[float | None] | None]]:
        """Means of what was recorded along the local steps."""
        return summarise(self.series)

    @property
    def cosine(self) -> float | None:
        """Mean cosine between the displacements of two participants: ||sum of unit vectors||^2 = S + S(S-1) mean."""
        S = self.moved
        return (float(self.directions.square().sum()) - S) / (S * (S - 1)) if S > 1 else None
