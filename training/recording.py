"""Quantities along the local steps, recorded where a recipe asks: record = ["proximal_cosine", "gradient_norm"].

The metrics of a round then hold "recorded": {name: {"mean": ..., "by_step": [...]}}, means over the participants (each
counts the same) and steps where the quantity is defined: a cosine with a zero vector is not, null says so. Some
quantities need gradients that the method does not take. Those evaluations are extra work, but they are not counted,
norm layers learn nothing from them, and no bit of training depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from landscape.errors import choose
from training.methods.fedgloss import ServerSharpness
from training.methods.fedsol import ProximalSAM
from training.methods.method import Method
from training.rules.base import GradientFunction, LossTerm
from training.rules.context import ClientContext
from training.rules.perturbations import NoPerturbation
from training.rules.vectors import Part, Vectors, norm, unit

SENT = ("direction", "momentum", "global_control")  # a server's estimate of the global gradient, by name in its message


Call = tuple[
    Tensor, LossTerm | None, int | None, Part, Tensor
]  # the arguments of a gradient function, and its gradient


class StepGradients(GradientFunction, Protocol):
    """The gradients of one local step, which can be copied for extra evaluations."""

    def make_silent_copy(self) -> GradientFunction:
        """Make a copy on the same batch that is not counted, leaves norm layers alone, and gives NaN, not errors."""


class RecordedGradients:
    """A gradient function that remembers its calls, so that no gradient is computed twice for the record."""

    def __init__(self, gradient_at: StepGradients):
        self.gradient_at = gradient_at
        self.calls: list[Call] = []
        self.extra: list[Call] = []  # for the record only

    def __call__(
        self, point: Tensor, loss_term: LossTerm | None = None, half: int | None = None, part: Part = "all"
    ) -> Tensor:
        gradient = self.gradient_at(point, loss_term, half, part)
        self.calls.append((point, loss_term, half, part, gradient))
        return gradient

    def recall(
        self, point: Tensor, loss_term: LossTerm | None = None, half: int | None = None, part: Part = "all"
    ) -> Tensor:
        """Return the gradient that was taken at exactly this point, or compute it without side effects."""
        for known, *how, gradient in (*self.calls, *self.extra):
            if known is point and how == [loss_term, half, part]:
                return gradient
        gradient = self.gradient_at.make_silent_copy()(point, loss_term, half, part)
        self.extra.append((point, loss_term, half, part, gradient))
        return self.extra[-1][-1]

    @property
    def last(self) -> Tensor:
        """Where the last gradient was taken."""
        return self.calls[-1][0]


@dataclass(frozen=True)
class LocalStep:
    """One local step, w -> moved, from which quantities are computed."""

    method: Method
    context: ClientContext
    w: Tensor
    descent: Tensor  # g~
    direction: Tensor  # u, after the correction
    moved: Tensor
    gradients: RecordedGradients

    @property
    def gradient(self) -> Tensor:
        """The gradient of the local loss at w: an extra evaluation where the method does not take it."""
        return self.gradients.recall(self.w)

    @property
    def perturbation(self) -> Tensor:
        """e, from w to the point where the descent gradient was taken."""
        return self.gradients.last - self.w

    @property
    def proximal(self) -> Tensor:
        """The gradient at w of the method's own proximal loss, else (an extra evaluation) of FedSoL's KL, tau = 3."""
        own = self.method.perturbation
        rule = own if isinstance(own, ProximalSAM) else ProximalSAM()
        return rule.proximal_gradient(self.w, self.gradients.recall, self.context)

    @property
    def sent(self) -> Tensor:
        """The server's estimate of the global gradient, as it was broadcast."""
        return next(self.context.message[name] for name in SENT if name in self.context.message)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine between two vectors (..., d) as (..., 1); NaN if one of them is zero."""
    inner = (unit(a) * unit(b)).sum(dim=-1, keepdim=True).clamp(-1, 1)
    return torch.where((norm(a) > 0) & (norm(b) > 0), inner, math.nan)


# name -> value of a step (1,), or (C, 1) for a stack of clients
QUANTITIES: dict[str, Callable[[LocalStep], Tensor]] = {
    # FedSoL, Figure 9b: cos(g_u, g_p), g_u = grad L(w + e) the update gradient; for methods without a perturbation
    # (the figure's rho = 0) g_u = grad L(w). Undefined in the first step, where g_p is zero.
    "proximal_cosine": lambda step: cosine(step.descent, step.proximal),
    "proximal_norm": lambda step: norm(step.proximal),  # ||grad L_p(w)||
    "gradient_norm": lambda step: norm(step.gradient),  # ||grad L(w)||
    "descent_norm": lambda step: norm(step.descent),  # ||g~||
    "direction_norm": lambda step: norm(step.direction),  # ||u||, after the correction, before clipping and decay
    "update_norm": lambda step: norm(step.moved - step.w),
    "perturbation_norm": lambda step: norm(step.perturbation),  # ||e||
    "perturbed_cosine": lambda step: cosine(step.descent, step.gradient),  # cos(g~, grad L(w))
    # against d, the global gradient as the server knows it. FedVSSAM's tracking error ||d - grad F(w^t)||^2 asks for
    # everyone's gradient (study `incompatibility`); these are what one client sees of it, step by step
    "server_cosine": lambda step: cosine(step.gradient, step.sent),
    "server_gap": lambda step: norm(step.gradient - step.sent),
    "perturbation_gap": lambda step: norm(step.perturbation - norm(step.perturbation) * unit(step.sent)),
}
PERTURBED = ("perturbation_norm", "perturbed_cosine", "perturbation_gap")
ANCHORED = ("server_cosine", "server_gap", "perturbation_gap")
# of a whole round. FedGloSS, eq. 6: delta_epsilon = ||e~ - e^||, the perturbation from the last round's pseudo-gradient
# against the true one, for which the cohort also trains from w^t; only NaiveFedGloSS does so anyway
OF_ROUNDS = ("delta_epsilon",)
DESCRIPTIONS = {  # quantity -> what it is
    "proximal_cosine": "cos(grad L(w + e), grad L_p(w)), FedSoL Figure 9b",
    "proximal_norm": "||grad L_p(w)||",
    "gradient_norm": "||grad L(w)||",
    "descent_norm": "norm of the gradient that the step takes",
    "direction_norm": "norm of the corrected gradient",
    "update_norm": "length of the step",
    "perturbation_norm": "||e||",
    "perturbed_cosine": "cos(grad L(w + e), grad L(w))",
    "server_cosine": "cosine of grad L(w) and the server's direction",
    "server_gap": "||grad L(w) - the server's direction||",
    "perturbation_gap": "distance of e from the same length along the server's direction",
    "delta_epsilon": "||e~ - e^||, FedGloSS eq. 6",
}


def list_quantities(method: Method) -> tuple[str, ...]:
    """List the quantities that can be recorded with a method."""
    nothing = torch.zeros(1)
    sent = method.make_message(nothing, method.init_server(nothing))
    lacking: set[str] = set()
    if isinstance(method.perturbation, NoPerturbation):
        lacking |= set(PERTURBED)
    if not any(name in sent for name in SENT):
        lacking |= set(ANCHORED)
    if not isinstance(method.server, ServerSharpness) or method.server.rho_s == 0:
        lacking |= set(OF_ROUNDS)
    return tuple(name for name in (*QUANTITIES, *OF_ROUNDS) if name not in lacking)


def check_quantities(names: Sequence[str], method: Method) -> None:
    """Raise ValueError for a quantity that is unknown or that the method does not have."""
    known = list_quantities(method)
    for name in names:
        choose("quantity to record", name, (*QUANTITIES, *OF_ROUNDS))
        if name not in known:
            raise ValueError(f"record: {method.name} has no {name}; it has {', '.join(known)}")


@dataclass
class Recorder:
    """Collects the values of the wanted quantities, step by step.

    names: keys of QUANTITIES.
    """

    names: Sequence[str]
    values: dict[str, list[Tensor]] = field(default_factory=dict)
    gradients: RecordedGradients = field(init=False)

    @classmethod
    def create(cls, names: Iterable[str]) -> Recorder | None:
        """Create a recorder, or None where no quantity of a step is wanted."""
        wanted = [name for name in names if name in QUANTITIES]
        return cls(wanted) if wanted else None

    def wrap(self, gradient_at: StepGradients) -> RecordedGradients:
        """Wrap the gradient function of the next step, so that its gradients can be recorded."""
        self.gradients = RecordedGradients(gradient_at)
        return self.gradients

    def record(
        self, method: Method, context: ClientContext, w: Tensor, descent: Tensor, direction: Tensor, moved: Tensor
    ) -> None:
        """Record a step, with the arguments of `LocalStep`. Dropout in extra evaluations uses a copied generator."""
        step = LocalStep(method, context, w, descent, direction, moved, self.gradients)
        with torch.random.fork_rng(devices=[]):
            for name in self.names:
                self.values.setdefault(name, []).append(QUANTITIES[name](step).detach())

    def read_series(self, row: int, steps: int) -> dict[str, list[float]]:
        """Return the values of one client by quantity.

        row: of the client in the stack.
        steps: the client's own steps; padded steps beyond them are left out.
        """
        return {
            name: [float(value.reshape(-1)[row]) for value in values[:steps]] for name, values in self.values.items()
        }


def summarise(series: Sequence[Mapping[str, list[float]]]) -> dict[str, dict[str, float | list[float | None] | None]]:
    """Average what the participants recorded: {name: {"mean": over all steps, "by_step": for each step}}.

    series: for each participant its values by quantity; None stands for a mean of no finite value.
    """
    found = {}
    for name in series[0] if series else ():
        rows = [one[name] for one in series]
        columns = [[row[step] for row in rows if step < len(row)] for step in range(max(map(len, rows)))]
        every = [value for row in rows for value in row]
        found[name] = {"mean": _mean(every), "by_step": [_mean(column) for column in columns]}
    return found


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None


def compute_perturbation_error(method: Method, server: Vectors, displacement: Tensor) -> float | None:
    """FedGloSS, eq. 6: rho_s ||unit(P~ of the last round) - unit(P of this one)||; P = -D, None in the first round.

    displacement: D of this round's cohort from w^t itself.
    """
    assert isinstance(method.server, ServerSharpness)
    ascent = server["ascent"]
    if not bool(ascent.any()):
        return None
    return method.server.rho_s * float(norm((unit(ascent) + unit(displacement)).double()))
