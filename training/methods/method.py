"""A federated method: one rule in each slot, under one name."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from landscape.layout import Layout
from training.rules.base import Correction, LossTerm, Perturbation, Rule, Server
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import Vectors


@dataclass(frozen=True)
class Method:
    """A named method: its rules, and where they come from."""

    name: str
    perturbation: Perturbation
    correction: Correction
    server: Server
    paper: str
    loss_term: LossTerm | None = None  # added to the cross-entropy of the local loss
    notes: str = field(default="", compare=False)

    @property
    def slots(self) -> dict[str, Rule]:
        """The rules by the place that they take."""
        three: dict[str, Rule] = {
            "perturbation": self.perturbation,
            "correction": self.correction,
            "server": self.server,
        }
        return three if self.loss_term is None else {**three, "loss_term": self.loss_term}

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(one for rule in self.slots.values() for one in (*rule.inner, rule))

    @property
    def client_vectors(self) -> tuple[str, ...]:
        return tuple(name for rule in self.rules for name in rule.client_vectors)

    @property
    def gradients_per_step(self) -> int:
        """Gradient evaluations of one local step; twice as many where the cohort trains twice."""
        once = 1 + max(self.perturbation.gradients, int(self.correction.needs_gradient))
        return 2 * once if self.server.probes else once

    @property
    def traffic(self) -> tuple[int, int]:
        """Model-sized vectors per participant and round, down and up."""
        return 1 + sum(rule.down for rule in self.rules), 1 + sum(rule.up for rule in self.rules)

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.init_client(layout, start).items()}

    def init_server(self, w: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.init_server(w).items()}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.make_message(w, server).items()}

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.update_client(context, w).items()}

    def make_upload(self, context: ClientContext, w: Tensor) -> Vectors:
        return {name: value for rule in self.rules for name, value in rule.make_upload(context, w).items()}

    def advance(self, w: Tensor, server: Vectors, report: RoundReport) -> tuple[Tensor, Vectors]:
        """The next global model and the server's next vectors; rules update before the model moves."""
        updated = dict(server)
        for rule in self.rules:
            updated.update(rule.update_server(updated, report))
        return self.server.step(w, updated, report), updated
