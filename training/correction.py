"""What is added to the descent gradient so that clients do not drift apart, and what that needs remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.layout import Layout
from training.parts import Correction, Report, Vectors, Visit, unit, within
from training.perturbation import personal_momentum


@dataclass(frozen=True)
class Plain(Correction):
    """u = g~."""

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, visit: Visit) -> Tensor:
        return gradient


@dataclass(frozen=True)
class Proximal(Correction):
    """u = g~ + mu (w - w^t): stay near the model that was sent (FedProx, Li et al. 2020)."""

    mu: float = 0.1

    def __post_init__(self) -> None:
        within("mu", self.mu, "[0, inf)")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, visit: Visit) -> Tensor:
        return gradient + self.mu * (w - visit.start) if self.mu else gradient


@dataclass(frozen=True)
class ControlVariate(Correction):
    """u = g~ - c_k + c; afterwards c_k <- c_k - c - D_k / (lr a_k) and c <- c + (1/N) sum of the changes.

    SCAFFOLD, option II (Karimireddy et al. 2020). a_k is K, or its counterpart where there is local momentum, which
    the paper does without. c stays the mean of all c_k.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("control",)
    down: ClassVar[int] = 1
    up: ClassVar[int] = 1

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, visit: Visit) -> Tensor:
        return gradient - visit.state["control"] + visit.message["global_control"]

    def server_init(self, w: Tensor) -> Vectors:
        return {"global_control": torch.zeros_like(w)}

    def message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"global_control": server["global_control"]}

    def finish(self, visit: Visit, w: Tensor) -> Vectors:
        moved = (w - visit.start) / (visit.lr * visit.effective_steps)
        return {"control": visit.state["control"] - visit.message["global_control"] - moved}

    def update(self, server: Vectors, report: Report) -> Vectors:
        return {"global_control": server["global_control"] + report.changes["control"] / report.clients}


@dataclass(frozen=True)
class Fading(Correction):
    """u = g~ - mu h_k; afterwards h_k <- h_k / (t - t_k) + w^t - w_k (AdaBest, Varno et al. 2022).

    t_k: the round in which the client last took part; an old h_k fades.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("drift", "last_round")
    mu: float = 0.02

    def __post_init__(self) -> None:
        within("mu", self.mu, "[0, inf)")

    def client_init(self, layout: Layout, start: Tensor) -> Vectors:
        return {"drift": torch.zeros_like(start), "last_round": start.new_full((1,), -1.0)}

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, visit: Visit) -> Tensor:
        return gradient - self.mu * visit.state["drift"]

    def finish(self, visit: Visit, w: Tensor) -> Vectors:
        last = visit.state["last_round"]
        faded = visit.state["drift"] / (visit.round - last)
        return {"drift": faded + visit.start - w, "last_round": torch.full_like(last, visit.round)}


@dataclass(frozen=True)
class ClientMomentum(Correction):
    """u = a g~ + (1 - a) Gbar, where Gbar is the last round's pseudo-gradient (FedCM, Xu et al. 2021)."""

    down: ClassVar[int] = 1
    a: float = 0.1

    def __post_init__(self) -> None:
        within("a", self.a, "(0, 1]")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, visit: Visit) -> Tensor:
        return self.a * gradient + (1 - self.a) * visit.message["momentum"]

    def server_init(self, w: Tensor) -> Vectors:
        return {"momentum": torch.zeros_like(w)}

    def message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"momentum": server["momentum"]}

    def update(self, server: Vectors, report: Report) -> Vectors:
        return {"momentum": report.pseudo_gradient}


@dataclass(frozen=True)
class MixedDescent(Correction):
    """u = (1 - a) d + a g~ with the server's direction d (FedVSSAM, eq. 15). lu = false: u = g~."""

    a: float = 0.1
    lu: bool = True

    def __post_init__(self) -> None:
        within("a", self.a, "(0, 1]")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, visit: Visit) -> Tensor:
        return (1 - self.a) * visit.message["direction"] + self.a * gradient if self.lu else gradient


@dataclass(frozen=True)
class PersonalMomentum(ControlVariate):
    """u = a g~ + (1 - a) G_k, G_k = Gbar + a / (1 - a) (c - c_k); c_k and c as in SCAFFOLD (FedWMSAM, Li et al. 2025).

    a <- (1 - pace) a + pace clip(mean_k (1 + cos(D_k, Gbar)), 0.1, 0.9). The server can work out c and the cosines from
    the models, so that they need not be sent.
    """

    down: ClassVar[int] = 1  # G_k, made by the server
    up: ClassVar[int] = 0
    a: float = 0.1
    pace: float = 0.01

    def __post_init__(self) -> None:
        within("a", self.a, "(0, 1)")
        within("pace", self.pace, "[0, 1]")

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, visit: Visit) -> Tensor:
        a = visit.message["mix"]
        return a * gradient + (1 - a) * personal_momentum(visit)

    def server_init(self, w: Tensor) -> Vectors:
        return {**super().server_init(w), "momentum": torch.zeros_like(w), "mix": w.new_tensor([self.a])}

    def message(self, w: Tensor, server: Vectors) -> Vectors:
        return {name: server[name] for name in ("global_control", "momentum", "mix")}

    def upload(self, visit: Visit, w: Tensor) -> Vectors:
        moved = unit(w - visit.start) * unit(visit.message["momentum"])
        return {"agreement": 1 + moved.sum(dim=-1, keepdim=True)}

    def update(self, server: Vectors, report: Report) -> Vectors:
        seen = report.uploads["agreement"].clamp(0.1, 0.9)
        mixed = (1 - self.pace) * server["mix"] + self.pace * seen
        return {**super().update(server, report), "momentum": report.pseudo_gradient, "mix": mixed}
