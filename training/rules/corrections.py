"""What is added to the descent gradient so that clients do not drift apart, and what has to be remembered for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from landscape.layout import Layout
from training.rules.base import Rule, Samples
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import Vectors, head, mix
from training.settings import NonNegative, Positive, PositiveOrInfinite, Share, settings


class Correction(Rule, ABC):
    """u, the direction of the local step, from the descent gradient g~."""

    needs_gradient: ClassVar[bool] = False  # whether `plain`, the gradient at w itself, is asked for

    @abstractmethod
    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        """The direction u at w.

        gradient: g~.
        plain: the gradient at w itself, if `needs_gradient` asks for it.
        """

    def choose_start(self, context: ClientContext, samples: Samples) -> Tensor:
        """Choose where local training starts: the point that was sent, unless a client mixes in its own model.

        samples: mini-batches to learn the mixture on.
        """
        return context.start

    def find_frozen(self, layout: Layout) -> slice | None:
        """Find the coordinates that never move, not even by weight decay."""
        return None

    def find_private(self, layout: Layout) -> slice | None:
        """Find the coordinates that every client keeps to itself: they are neither sent nor averaged."""
        return None

    def keeps_statistic(self, name: str) -> bool:
        """Tell whether every client keeps this running statistic of a norm layer to itself.

        name: of the statistic in the network, such as "stem.conv.bn.running_mean".
        """
        return False


@settings
class Plain(Correction):
    """u = g~."""

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient


@settings
class Proximal(Correction):
    """u = g~ + mu (w - w^t): stay near the model that was sent (FedProx, Li et al. 2020)."""

    mu: NonNegative = Field(default=0.1, description="strength of the pull towards the model that was sent")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient + self.mu * (w - context.start) if self.mu else gradient


@settings
class ControlVariate(Correction):
    """u = g~ - c_k + c; afterwards c_k <- c_k - c - D_k / (lr a_k) and c <- c + (1/N) sum of the changes.

    SCAFFOLD, option II (Karimireddy et al. 2020). a_k is K, or its counterpart where there is local momentum, which
    the paper does without. c stays the mean of all c_k.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("control",)
    down: ClassVar[int] = 1
    up: ClassVar[int] = 1

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient - context.state["control"] + context.message["global_control"]

    def init_server(self, w: Tensor) -> Vectors:
        return {"global_control": torch.zeros_like(w)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"global_control": server["global_control"]}

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        moved = (w - context.start) / (context.lr * context.effective_steps)
        return {"control": context.state["control"] - context.message["global_control"] - moved}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"global_control": server["global_control"] + report.changes["control"] / report.clients}


@settings
class ClientMomentum(Correction):
    """u = a g~ + (1 - a) Gbar, where Gbar is the last round's pseudo-gradient (FedCM, Xu et al. 2021)."""

    down: ClassVar[int] = 1
    a: Share = Field(default=0.1, description="weight of the client's gradient; the server's momentum weighs 1 - a")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return mix(context.message["momentum"], gradient, self.a)

    def init_server(self, w: Tensor) -> Vectors:
        return {"momentum": torch.zeros_like(w)}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"momentum": server["momentum"]}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        return {"momentum": report.pseudo_gradient}


@settings
class BodyOnly(Correction):
    """u = g~, but the head stays at its random start: only the body is trained and sent (FedBABU, Oh et al. 2022)."""

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient

    def find_frozen(self, layout: Layout) -> slice | None:
        return head(layout)


class Duals(Correction):
    """u = g~ - l_k + alpha (w - w^t); afterwards l_k <- l_k - alpha D_k. Each paper has its own name for alpha.

    The server keeps sigma = (1/N) sum_k l_k / alpha, which `SubtractDual` takes off the mean model.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("dual",)

    @property
    @abstractmethod
    def strength(self) -> float:
        """alpha."""

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        pull = torch.sub(w, context.start).mul_(self.strength)  # in place: large vectors are bound by memory
        return torch.sub(gradient, context.state["dual"]).add_(pull)

    def init_server(self, w: Tensor) -> Vectors:
        return {"sigma": torch.zeros_like(w)}

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        return {"dual": context.state["dual"] - self.strength * (w - context.start)}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        if self.strength == 0:  # no duals at all
            return {}
        return {"sigma": server["sigma"] + report.changes["dual"] / (report.clients * self.strength)}


@settings
class Dual(Duals):
    """u = g~ - l_k + alpha (w - w^t), l_k <- l_k - alpha D_k (FedDyn, Acar et al. 2021).

    alpha -> 0 is not FedAvg: sigma does not vanish with alpha.
    """

    alpha: Positive = Field(default=0.01, description="strength of the pull towards the model that was sent")

    @property
    def strength(self) -> float:
        return self.alpha


@settings
class Lagrangian(Duals):
    """u = g~ - l_k + (w - w^t) / beta, l_k <- l_k - D_k / beta (FedGloSS, FedSMOO)."""

    beta: PositiveOrInfinite = Field(default=10.0, description="inverse strength of the duals; inf: no duals, u = g~")

    @property
    def strength(self) -> float:
        return 1 / self.beta


@settings
class OwnStatistics(Correction):
    """u = g~; every client goes on with the running statistics that it ended its last local training with (SiloBN).

    A client that takes part for the first time begins with the initial ones. The server's model is tested with the
    mean of the participants' statistics. `rounds.statistics = "own"` does the same for any method.
    """

    names: str = Field(
        default="",
        description='part of the names of the statistics that stay; all if empty, "bn.running" as FedDrive\'s code',
    )

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient

    def keeps_statistic(self, name: str) -> bool:
        return self.names in name
