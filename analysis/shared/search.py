"""The direction in which a method climbs: on its clients, and on a server that perturbs the model itself."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional

from analysis.subjects import Run, Subject
from landscape.geometry.directions import distance
from training.engine.saving import restore_state
from training.executors.serial import Serial
from training.methods.fedgloss import ServerSharpness
from training.methods.fedvssam import MixedSAM
from training.rules.context import ClientContext
from training.rules.vectors import unit

RADIUS = 0.05  # where the method has no radius of its own


@dataclass(frozen=True)
class Search:
    """Where a method looks for a higher loss: v = (1 - a) d + a g.

    radius: how far it looks.
    a: the share of the gradient g.
    direction: d, as long as the weights; None: along the gradient alone.
    """

    radius: float
    a: float = 1.0
    direction: Tensor | None = None

    def perturb(self, gradient: Tensor) -> Tensor:
        """rho v / ||v||; running statistics, which a gradient ends with, are never perturbed."""
        if self.direction is None:
            return self.radius * unit(gradient)
        d = functional.pad(self.direction.to(gradient), (0, len(gradient) - len(self.direction)))
        return self.radius * unit((1 - self.a) * d + self.a * gradient)


def find_search(subject: Subject, round: int, radius: float | None = None) -> Search:
    """Find the search of the run's method at a round; along the gradient if the subject is not a run.

    radius: how far it goes; None: as far as the method.
    """
    if not isinstance(subject, Run):
        return Search(radius or RADIUS)
    rule, layout = subject.federation.method.perturbation, subject.federation.trainer.layout
    context = ClientContext(layout, subject.point(round), {}, {}, lr=0.0, momentum=0.0, steps=1, round=round)
    radius = radius or rule.euclidean_radius(context) or RADIUS
    if isinstance(rule, MixedSAM) and rule.lf:
        known = subject.checkpoint(round).server
        if "direction" not in known:
            raise ValueError(
                f"{subject.name}: round {round} does not keep the server's direction, along which this method looks: "
                "an adopted run has models only"
            )
        return Search(radius, rule.a, known["direction"])
    return Search(radius)


def find_server_rule(subject: Subject) -> ServerSharpness | None:
    """Find the rule of a server that perturbs the model itself (FedGloSS, NaiveFedGloSS); None for others."""
    rule = subject.federation.method.server if isinstance(subject, Run) else None
    return rule if isinstance(rule, ServerSharpness) else None


def measure_delta_epsilon(subject: Subject, round: int) -> float:
    """||e~ - e^||: the server's perturbation from the last pseudo-gradient, and from the true one (FedGloSS, eq. 6).

    For the true one the next cohort trains from w^t itself. NaN where the clients' duals are no longer on record.
    """
    rule = find_server_rule(subject)
    assert rule is not None
    assert isinstance(subject, Run)
    found = subject.checkpoint(round)
    method = subject.federation.method
    lost = found.extra.get("forgotten") and getattr(method.correction, "strength", 1.0) != 0
    if "ascent" not in found.server or lost:  # an adopted run has models only
        return math.nan
    federation = copy.copy(subject.federation)
    still = ServerSharpness(rho_s=0.0, eta_s=rule.eta_s, dual_from=rule.dual_from)
    federation.method, federation.objective = replace(method, server=still), None  # nothing is tested on the way
    following, _, _ = federation.advance(restore_state(found), Serial(federation.trainer), keep_locals=False)
    return measure_perturbation_gap(rule.rho_s, found.server["ascent"], following.server["ascent"])


def measure_perturbation_gap(radius: float, last: Tensor, true: Tensor) -> float:
    """radius ||last / ||last|| - true / ||true|| ||, between 0 and 2 radius."""
    return radius * distance(unit(last.double()), unit(true.double()))
