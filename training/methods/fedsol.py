"""FedSoL (Lee et al. 2024): the local gradient is taken where a proximal loss is higher."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from training.rules.base import GradientFunction, LossTerm, Rule
from training.rules.context import ClientContext
from training.rules.corrections import ControlVariate, Correction, Dual, Proximal
from training.rules.loss_terms import Contrast, Distillation
from training.rules.perturbations import Perturbation
from training.rules.vectors import Part, list_inside, norm, unit
from training.settings import NonNegative, Positive, settings

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


@settings
class ProximalSAM(Perturbation):
    """e = rho unit(grad L_p(w; w^t)), L_p = KL(softmax(z_g / tau) || softmax(z / tau)); g~ = grad L(w + e) (FedSoL).

    An "adaptive" radius scales e in each layer (weight and bias together, eq. 11) by |w - w^t| / ||w - w^t||, so that
    what moved most is perturbed most; "adaptive_code" takes the norm along the first axis of each tensor, as the
    published code does.
    """

    gradients: ClassVar[int] = 1
    rho: NonNegative = Field(default=2.0, description="radius of the perturbation")
    proximal: Literal["kl", "contrast", "distance", "control", "dual", "local"] = Field(
        default="kl",
        description="the proximal loss L_p: kl, MOON's contrast, the distance to the model that was sent, SCAFFOLD's "
        "direction (control), FedDyn's (dual), or the local loss itself (FedSAM)",
    )
    tau: Positive = Field(default=3.0, description="temperature of kl and contrast")
    alpha: Positive = Field(default=0.01, description="strength of the dual")
    radius: Literal["fixed", "adaptive", "adaptive_code"] = Field(
        default="fixed", description="whether what moved most is perturbed most, as in eq. 11 or as in the code"
    )
    part: Part = Field(default="all", description="perturb the whole network, its head (the last layer), or its body")
    combine: Literal["A0", "A1", "A2", "A3", "A4", "A5", "A6"] = Field(
        default="A1", description="where both gradients are taken and whether they are added, as in Table 6"
    )
    beta: float = Field(default=1.0, description="weight of the proximal gradient where it is added")

    @cached_property
    def proximal_rule(self) -> Rule | None:
        """The rule whose gradient is that of the proximal loss; None for the local loss itself."""
        return PROXIMAL[self.proximal](self)

    @property
    def inner(self) -> tuple[Rule, ...]:
        return () if self.proximal_rule is None else (self.proximal_rule,)

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        """The perturbation along `gradient`, whichever of the two gradients that is."""
        if self.rho == 0 or gradient is None:
            return None
        if self.part != "all":
            gradient = gradient.clone()
            for entry, inside in zip(context.layout.entries, list_inside(context.layout, self.part), strict=True):
                if not inside:
                    gradient[..., entry.start : entry.stop] = 0.0
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
            # what is only climbed is needed in the perturbed part alone: for a head, one forward pass and little more
            part = "all" if proximal_at == "w" else self.part
            at_w["proximal"] = self.proximal_gradient(w, gradient_at, context, part)
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

    def proximal_gradient(
        self, point: Tensor, gradient_at: GradientFunction, context: ClientContext, part: Part = "all"
    ) -> Tensor:
        """Compute the gradient of the proximal loss at a point.

        part: of the network; outside the gradient may be left out, and zero.
        """
        rule = self.proximal_rule
        taken = gradient_at if part == "all" else partial(gradient_at, part=part)
        if rule is None:
            return taken(point)
        if isinstance(rule, (Distillation, Proximal)) and torch.equal(point, context.start.expand(point.shape)):
            # zero by definition at the model that was sent; rounding must not be blown up to the radius
            return torch.zeros_like(point)
        if isinstance(rule, Contrast):  # likewise for a client that has no model of its own yet
            fresh = (context.state["previous"] == context.start).all(dim=-1, keepdim=True)
            return torch.where(fresh, 0.0, taken(point, rule))
        if isinstance(rule, LossTerm):
            return taken(point, rule)
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
