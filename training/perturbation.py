"""Where the descent gradient is taken: at w, or at a point where the loss is higher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.errors import choose
from landscape.layout import Layout
from training.parts import Perturbation, Report, Slope, Vectors, Visit, norm, unit, within


@dataclass(frozen=True)
class NoPerturbation(Perturbation):
    """e = 0."""

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        return None


@dataclass(frozen=True)
class SAM(Perturbation):
    """e = rho g / ||g||, norm over all parameters together (Foret et al. 2021).

    warmup: rounds T_s in which the radius grows, rho(t) = rho_start + (rho - rho_start) t / T_s for t = 1, ..., T_s
    (FedGloSS, appendix C.2; its Algorithm 1 counts rounds from 1, so that rho_start itself is never taken).
    """

    gradients: ClassVar[int] = 1
    rho: float = 0.05
    warmup: int = 0
    rho_start: float = 0.001

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")
        within("rho_start", self.rho_start, "[0, inf)")
        within("warmup", self.warmup, "[0, inf)")

    def radius(self, visit: Visit) -> float:
        t = visit.round + 1  # visits count rounds from 0
        return self.rho if t >= self.warmup else self.rho_start + (self.rho - self.rho_start) * t / self.warmup

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        return self.radius(visit) * unit(self.direction(gradient, visit))

    def direction(self, gradient: Tensor, visit: Visit) -> Tensor:
        """Where to climb; the gradient itself unless a method knows better."""
        return gradient


@dataclass(frozen=True)
class ASAM(Perturbation):
    """e = rho T^2 g / ||T g||, T = |w| + eta on weights and 1 elsewhere (Kwon et al. 2021).

    scope: "weights" as in the published code, tensors whose name contains "weight"; or "all", T = |w| + eta on
    every tensor, as SAM code with an `adaptive` flag does. The two are on different scales of rho.
    """

    gradients: ClassVar[int] = 1
    rho: float = 0.5
    eta: float = 0.2
    scope: str = "weights"

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")
        within("eta", self.eta, "[0, inf)")
        choose("scope", self.scope, ("weights", "all"))

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        T = torch.ones_like(w)
        for entry in visit.layout.entries:
            if self.scope == "all" or "weight" in entry.name:  # by the name, so norm layers' scales count as well
                visit.layout.view(T, entry).copy_(visit.layout.view(w, entry).abs() + self.eta)
        length = norm(T * gradient)
        return self.rho * T.square() * gradient / torch.where(length > 0, length, 1.0)


@dataclass(frozen=True)
class GradientStep(Perturbation):
    """e = rho g, not normalised (FedSpeed, Sun et al. 2023). normalised: e = rho g / ||g||, as its code has it."""

    gradients: ClassVar[int] = 1
    rho: float = 0.1
    normalised: bool = False

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        return self.rho * (unit(gradient) if self.normalised else gradient)


@dataclass(frozen=True)
class MixedSAM(SAM):
    """e = rho v / ||v||, v = (1 - a) d + a g with the server's direction d (FedVSSAM, eq. 14). lf = false: v = g."""

    a: float = 0.1
    lf: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        within("a", self.a, "(0, 1]")

    def direction(self, gradient: Tensor, visit: Visit) -> Tensor:
        return (1 - self.a) * visit.message["direction"] + self.a * gradient if self.lf else gradient


@dataclass(frozen=True)
class OldGlobal(Perturbation):
    """e = rho (w_old - w^t) / ||w_old - w^t||, w_old the model that the client was sent last time (FedLESAM, 2024).

    One gradient per step; none perturbed at first participation, when w_old is w^t itself.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("last_sent",)
    rho: float = 0.01

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")

    def client_init(self, layout: Layout, start: Tensor) -> Vectors:
        return {"last_sent": start}

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        return self.rho * unit(visit.state["last_sent"] - visit.start) if self.rho else None

    def finish(self, visit: Visit, w: Tensor) -> Vectors:
        return {"last_sent": visit.start.expand(w.shape)}


@dataclass(frozen=True)
class SharedSAM(Perturbation):
    """Clients agree on one perturbation s by ADMM (FedSMOO, Sun et al. 2023).

    v = g - mu_k - s, e = rho v / ||v||, mu_k <- mu_k + e - s; the server sets s = rho unit(mean of mu_k - e_k).
    exchange: "difference" as in the paper, or "dual", mu_k alone, as the authors' code sends it.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("perturbation_dual",)
    down: ClassVar[int] = 1
    up: ClassVar[int] = 1
    gradients: ClassVar[int] = 1
    rho: float = 0.1
    exchange: str = "difference"

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")
        choose("exchange", self.exchange, ("difference", "dual"))

    def server_init(self, w: Tensor) -> Vectors:
        return {"shared_perturbation": torch.zeros_like(w)}

    def message(self, w: Tensor, server: Vectors) -> Vectors:
        return {"shared_perturbation": server["shared_perturbation"]}

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        if self.rho == 0:
            return None
        assert gradient is not None
        mu, s = visit.state["perturbation_dual"], visit.message["shared_perturbation"]
        e = self.rho * unit(gradient - mu - s)
        visit.state["perturbation_dual"], visit.scratch["perturbation"] = mu + e - s, e
        return e

    def upload(self, visit: Visit, w: Tensor) -> Vectors:
        mu = visit.state["perturbation_dual"]
        last = visit.scratch.get("perturbation", 0.0) if self.exchange == "difference" else 0.0
        return {"perturbation_vote": mu - last}

    def update(self, server: Vectors, report: Report) -> Vectors:
        return {"shared_perturbation": self.rho * unit(report.uploads["perturbation_vote"])}


@dataclass(frozen=True)
class Interpolated(SAM):
    """Gradient at q = c w_g + (1 - c) (w + e), e = rho g / ||g||, w_g the server's perturbed model (FedGF, 2024).

    `GlobalAscent` sends w_g and c; for c = 0, as in the first round, this is SAM.
    """

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        e, c = super().__call__(w, gradient, visit), visit.message["trust"]
        if e is None and not bool(c):
            return None
        return c * (visit.message["ascended"] - w) + (1 - c) * (0.0 if e is None else e)


@dataclass(frozen=True)
class Predicted(Perturbation):
    """e = rho delta / ||delta||, delta = w^t + b G_k - w after b local steps (FedWMSAM, Li et al. 2025).

    One gradient per step. sign = -1 climbs the other way, as the published optimiser does.
    """

    rho: float = 0.01
    sign: int = 1

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")
        if self.sign not in (-1, 1):
            raise ValueError(f"sign must be 1 or -1, got {self.sign}")

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        if self.rho == 0:
            return None
        return self.sign * self.rho * unit(visit.start + visit.step * personal_momentum(visit) - w)


def personal_momentum(visit: Visit) -> Tensor:
    """G_k = Gbar + a / (1 - a) (c - c_k): the server's momentum, corrected towards one client (FedWMSAM)."""
    a = visit.message["mix"]
    return visit.message["momentum"] + a / (1 - a) * (visit.message["global_control"] - visit.state["control"])


@dataclass(frozen=True)
class MetaStep(Perturbation):
    """Gradient at w - adapt g(w; B1), taken on a second mini-batch B2 (PerFedAvg, first order, Fallah et al. 2020)."""

    gradients: ClassVar[int] = 1
    batches: ClassVar[int] = 2
    adapt: float = 0.01

    def __post_init__(self) -> None:
        within("adapt", self.adapt, "[0, inf)")

    def __call__(self, w: Tensor, gradient: Tensor | None, visit: Visit) -> Tensor | None:
        assert gradient is not None
        return -self.adapt * gradient

    def descend(self, w: Tensor, slope: Slope, visit: Visit, plain: bool) -> tuple[Tensor, Tensor | None]:
        first = slope(w, half=0)
        return slope(w - self.adapt * first, half=1), first


PERTURBATIONS: dict[str, type[Perturbation]] = {"none": NoPerturbation, "sam": SAM, "asam": ASAM}
