"""A federated method: one rule in each slot, under one name."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from landscape.layout import Layout
from training.rules.base import LocalLoss, LossTerm, Rule
from training.rules.context import ClientContext, RoundReport
from training.rules.corrections import Correction
from training.rules.perturbations import Perturbation
from training.rules.servers import Server
from training.rules.vectors import Vectors


@dataclass(frozen=True)
class Method:
    """A named method: its rules, and the paper that they come from.

    All hooks of `Rule` can be called on a method: they collect what its rules answer.
    """

    name: str
    perturbation: Perturbation
    correction: Correction
    server: Server
    paper: str
    loss_term: LossTerm | None = None  # added to the cross-entropy of the local loss
    local_loss: LocalLoss | None = None  # in the place of both

    @property
    def slots(self) -> dict[str, Rule]:
        """The rules by slot."""
        three: dict[str, Rule] = {
            "perturbation": self.perturbation,
            "correction": self.correction,
            "server": self.server,
        }
        losses = {"loss_term": self.loss_term, "local_loss": self.local_loss}
        return three | {slot: rule for slot, rule in losses.items() if rule is not None}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Every rule, those inside others first."""
        return tuple(one for rule in self.slots.values() for one in (*rule.inner, rule))

    @property
    def client_vectors(self) -> tuple[str, ...]:
        """Names of the vectors that each client keeps."""
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

    def count_numbers(self, layout: Layout) -> tuple[int, int]:
        """Count the numbers that a participant is sent in a round, and those that it sends back."""
        private = self.correction.find_private(layout)
        shared = layout.size - (0 if private is None else private.stop - private.start)
        beside = [rule.count_numbers(layout) for rule in self.rules]
        down, up = self.traffic
        return down * shared + sum(one for one, _ in beside), up * shared + sum(one for _, one in beside)

    def adapt_network(self, model: nn.Module, *, classes: int, seed: int) -> nn.Module:
        """Make the network to train from the recipe's: the same one, unless the method has its own loss."""
        return model if self.local_loss is None else self.local_loss.adapt_network(model, classes=classes, seed=seed)

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        """Create the vectors of a client that takes part for the first time and is sent `start`."""
        return {name: value for rule in self.rules for name, value in rule.init_client(layout, start).items()}

    def init_server(self, w: Tensor) -> Vectors:
        """Create the server's vectors before the first round."""
        return {name: value for rule in self.rules for name, value in rule.init_server(w).items()}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        """Collect what is broadcast beside the model w."""
        return {name: value for rule in self.rules for name, value in rule.make_message(w, server).items()}

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        """Compute the client's new vectors after local training ended at w."""
        return {name: value for rule in self.rules for name, value in rule.update_client(context, w).items()}

    def make_upload(self, context: ClientContext, w: Tensor) -> Vectors:
        """Collect what the client sends beside its model w."""
        return {name: value for rule in self.rules for name, value in rule.make_upload(context, w).items()}

    def advance(self, w: Tensor, server: Vectors, report: RoundReport) -> tuple[Tensor, Vectors]:
        """Compute the next global model and the server's next vectors; rules update before the model moves."""
        updated = dict(server)
        for rule in self.rules:
            updated.update(rule.update_server(updated, report))
        return self.server.step(w, updated, report), updated
