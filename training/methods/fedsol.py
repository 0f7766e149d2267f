"""FedSoL's perturbation: climb a proximal loss, so that the local gradient is taken where the client would stray to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from landscape.errors import choose, positive
from training.rules.base import Correction, GradientFunction, LossTerm, Perturbation, Rule, within
from training.rules.context import ClientContext
from training.rules.corrections import ControlVariate, Proximal
from training.rules.duals import Dual
from training.rules.loss_terms import Contrast, Distillation
from training.rules.vectors import head, norm, unit

# FedSoL, Table 6: where the local gradient is taken, and where the proximal one that is added to it (None: not added).
# "w" the weights, "p" perturbed along the proximal gradient, "c" along the gradient of the sum of both losses.
COMBINATIONS: dict[str, tuple[str, str | None]] = {
    "A0": ("w", None),
    "A1": ("p", None),  # FedSoL itself
    "A2": ("w", "p"),
    "A3": ("p", "p"),
    "A4": ("c", "c"),
    "A5": ("w", "w"),
    "A6": ("p", "w"),
}
# proximal loss -> the rule whose gradient it is: a term of the network's outputs, or what a correction adds (Table 7)
PROXIMAL: dict[str, Callable[[ProximalSAM], Rule | None]] = {
    "kl": lambda rule: Distillation(tau=rule.tau),
    "contrast": lambda rule: Contrast(mu=1.0, tau=rule.tau),
    "distance": lambda rule: Proximal(mu=1.0),
    "control": lambda rule: ControlVariate(),
    "dual": lambda rule: Dual(alpha=rule.alpha),
    "local": lambda rule: None,  # the local loss itself: FedSAM
}
RADII = ("fixed", "adaptive", "adaptive_code")
PARTS = ("all", "head", "body")


@dataclass(frozen=True)
class ProximalSAM(Perturbation):
    """e = rho unit(grad L_p(w; w^t)), L_p = KL(softmax(z_g / tau) || softmax(z / tau)); g~ = grad L(w + e) (FedSoL).

    proximal  the loss L_p: kl, distance, control (SCAFFOLD's direction), dual (FedDyn's), contrast (MOON's), local.
    radius    "adaptive": e scaled in each layer (weight and bias together, eq. 11) by |w - w^t| / ||w - w^t||, so that
              what moved most is perturbed most; "adaptive_code": with the norm along the first axis of each tensor, as
              the published code takes it.
    part      perturb all of the network, its head (the last layer) or its body.
    combine   A0 ... A6, the combinations of its Table 6; beta weighs the proximal gradient where one is added.
    """

    gradients: ClassVar[int] = 1
    rho: float = 2.0
    proximal: str = "kl"
    tau: float = 3.0
    alpha: float = 0.01
    radius: str = "fixed"
    part: str = "all"
    combine: str = "A1"
    beta: float = 1.0

    def __post_init__(self) -> None:
        within("rho", self.rho, "[0, inf)")
        choose("proximal", self.proximal, PROXIMAL)
        positive("tau", self.tau)
        positive("alpha", self.alpha)
        choose("radius", self.radius, RADII)
        choose("part", self.part, PARTS)
        choose("combine", self.combine, COMBINATIONS)

    @property
    def rule(self) -> Rule | None:
        return PROXIMAL[self.proximal](self)

    @property
    def inner(self) -> tuple[Rule, ...]:
        return () if self.rule is None else (self.rule,)

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        """The perturbation along `gradient`, whichever of the two gradients that is."""
        if self.rho == 0 or gradient is None:
            return None
        if self.part != "all":
            inside = torch.zeros_like(gradient, dtype=torch.bool)
            inside[..., head(context.layout)] = True
            gradient = torch.where(inside if self.part == "head" else ~inside, gradient, 0.0)
        e = self.rho * unit(gradient)
        if self.radius == "fixed":
            return e
        return e * (self._scale(w, context) if self.radius == "adaptive" else self._scale_of_code(w, context))

    def descend(
        self, w: Tensor, gradient_at: GradientFunction, context: ClientContext, plain: bool
    ) -> tuple[Tensor, Tensor | None]:
        local_at, proximal_at = COMBINATIONS[self.combine]
        at_w = {"local": gradient_at(w)} if plain or "c" in (local_at, proximal_at) or local_at == "w" else {}
        if "p" in (local_at, proximal_at) or "c" in (local_at, proximal_at) or proximal_at == "w":
            at_w["proximal"] = self.proximal_gradient(w, gradient_at, context)
        points = {"w": w}
        if "p" in (local_at, proximal_at):
            points["p"] = w + (0.0 if (e := self(w, at_w["proximal"], context)) is None else e)
        if "c" in (local_at, proximal_at):
            both = at_w["local"] + self.beta * at_w["proximal"]
            points["c"] = w + (0.0 if (e := self(w, both, context)) is None else e)
        descent = at_w["local"] if local_at == "w" else gradient_at(points[local_at])
        if proximal_at == "w":
            descent = descent + self.beta * at_w["proximal"]
        elif proximal_at is not None:
            descent = descent + self.beta * self.proximal_gradient(points[proximal_at], gradient_at, context)
        return descent, at_w.get("local")

    def proximal_gradient(self, point: Tensor, gradient_at: GradientFunction, context: ClientContext) -> Tensor:
        """The gradient of the proximal loss."""
        rule = self.rule
        if rule is None:
            return gradient_at(point)
        if isinstance(rule, (Distillation, Proximal)) and torch.equal(point, context.start.expand(point.shape)):
            # zero by definition at the model that was sent; rounding must not be blown up to the radius
            return torch.zeros_like(point)
        if isinstance(rule, Contrast):  # likewise for a client that has no model of its own yet
            fresh = (context.state["previous"] == context.start).all(dim=-1, keepdim=True)
            return torch.where(fresh, 0.0, gradient_at(point, rule))
        if isinstance(rule, LossTerm):
            return gradient_at(point, rule)
        assert isinstance(rule, Correction)
        return rule(torch.zeros_like(point), None, point, context)

    def _scale(self, w: Tensor, context: ClientContext) -> Tensor:
        away, entries = (w - context.start).abs(), context.layout.entries
        scale = torch.zeros_like(away)
        for layer in dict.fromkeys(entry.layer for entry in entries):
            own = [slice(entry.start, entry.stop) for entry in entries if entry.layer == layer]
            length = norm(torch.cat([away[..., part] for part in own], dim=-1))
            for part in own:
                scale[..., part] = away[..., part] / torch.where(length > 0, length, 1.0)
        return scale

    def _scale_of_code(self, w: Tensor, context: ClientContext) -> Tensor:
        scale = (w - context.start).abs()
        for entry in context.layout.entries:
            part = context.layout.view(scale, entry)
            length = torch.linalg.vector_norm(part, dim=-len(entry.shape), keepdim=True)
            part /= torch.where(length > 0, length, 1.0)
        return scale
