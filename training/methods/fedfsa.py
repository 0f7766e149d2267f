"""FedFSA (Xing et al. 2025): the layers that moved most are perturbed within a larger radius."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from landscape.layout import Entry, Layout
from landscape.rng import numpy_generator
from training.rules.context import ClientContext, RoundReport
from training.rules.perturbations import Perturbation
from training.rules.vectors import Vectors, norm
from training.settings import NonNegative, Whole, settings

Measure = Literal["square", "mean", "minmax"]  # how far a tensor has moved
LEFT_OUT = ("bn", "downsample", "shortcut", "norm")  # names that the published code leaves out (FSA.py)


@settings
class LayerRadii(Perturbation):
    """e_j = r_j g_j / ||g||: r_j = rho_larger for the client's chosen tensors, rho for the others (FedFSA).

    After its local training a client chooses `layers` tensors among the weights of its convolutions and linear layers,
    for the next time that it takes part; until then none is chosen. Movement is measured as
    "square", ||w_K,j - w_0,j||^2 as the paper writes it; "mean", divided by the number of entries (the paper
    does not say which); "minmax", as its code: tensors scaled to [0, 1] before they are compared, then "mean",
    and the convolutions of shortcuts are not compared at all, so that 18 remain of ResNet-18's 21 tensors.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("chosen",)
    gradients: ClassVar[int] = 1
    rho: NonNegative = Field(default=0.05, description="radius of the other tensors")
    rho_larger: NonNegative = Field(default=0.9, description="radius of the chosen tensors")
    layers: Whole = Field(default=2, description="how many tensors a client chooses")
    select: Literal["top", "reverse", "random"] = Field(
        default="top", description="choose the tensors that moved most, those that moved least, or any"
    )
    measure: Measure = Field(default="square", description="how movement is measured")

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        return {"chosen": start.new_zeros(len(layout.entries))}

    def euclidean_radius(self, when: ClientContext | RoundReport) -> float | None:
        return self.rho

    def __call__(self, w: Tensor, gradient: Tensor | None, context: ClientContext) -> Tensor | None:
        if self.rho == self.rho_larger == 0:
            return None
        assert gradient is not None
        radii = self.rho + (self.rho_larger - self.rho) * context.state["chosen"]
        lengths = torch.tensor([entry.stop - entry.start for entry in context.layout.entries], device=w.device)
        length = norm(gradient)
        return torch.repeat_interleave(radii, lengths, dim=-1) * gradient / torch.where(length > 0, length, 1.0)

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        rows = w.reshape(-1, w.shape[-1])
        chosen = [self._choose(context, client, row) for client, row in zip(context.clients, rows, strict=True)]
        return {"chosen": torch.stack(chosen).reshape(*w.shape[:-1], -1)}

    def _choose(self, context: ClientContext, client: int, w: Tensor) -> Tensor:
        """1 for the chosen tensors, 0 for the rest."""
        entries = context.layout.entries
        eligible = list_comparable(context.layout, self.measure)
        if self.select == "random":
            order = numpy_generator(context.seed, "layers", context.round, client).permutation(len(eligible)).tolist()
        else:
            moved = torch.stack([self._movement(context, w, entries[i]) for i in eligible])
            order = torch.argsort(moved, descending=self.select == "top", stable=True).tolist()
        mask = w.new_zeros(len(entries))
        mask[[eligible[i] for i in order[: self.layers]]] = 1.0
        return mask

    def _movement(self, context: ClientContext, w: Tensor, entry: Entry) -> Tensor:
        before, after = (context.layout.view(vector, entry) for vector in (context.start, w))
        if self.measure == "minmax":
            before, after = _scaled(before), _scaled(after)
        squares = (after - before).square()
        return squares.sum() if self.measure == "square" else squares.mean()


def list_comparable(layout: Layout, measure: Measure) -> list[int]:
    """List the indices of the tensors that a measure compares: weights of convolutions and linear layers."""
    left_out = LEFT_OUT if measure == "minmax" else ()
    return [
        index
        for index, entry in enumerate(layout.entries)
        if entry.kind == "weight" and len(entry.shape) > 1 and not any(word in entry.name for word in left_out)
    ]


def _scaled(tensor: Tensor) -> Tensor:
    """To [0, 1]; a constant tensor to zero."""
    low, high = tensor.min(), tensor.max()
    return (tensor - low) / torch.where(high > low, high - low, 1.0)
