"""Flat vectors and the arithmetic that rules share; the last axis holds the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from landscape.layout import Layout

Vectors = dict[str, Tensor]
Part = Literal["all", "head", "body"]  # of a network: its head is the last layer, its body the rest


def norm(vector: Tensor) -> Tensor:
    """L2 norm over the last axis, which is kept with length one.

    >>> norm(torch.tensor([3.0, 4.0]))
    tensor([5.])
    """
    length: Tensor = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return length


def unit(vector: Tensor) -> Tensor:
    """v / ||v||, and zero for zero."""
    length = norm(vector)
    return vector / torch.where(length > 0, length, 1.0)


def mix(one: Tensor, other: Tensor, share: float) -> Tensor:
    """(1 - share) one + share other, with one array less than written so: large vectors are bound by memory.

    other: a stack of clients' vectors, if either of the two is.

    >>> mix(torch.tensor([1.0]), torch.tensor([3.0]), 0.25)
    tensor([1.5000])
    """
    return (share * other).add_((1 - share) * one)


def move(vectors: Mapping[str, Tensor], device: torch.device) -> Vectors:
    """The same vectors on a device."""
    return {name: vector.to(device) for name, vector in vectors.items()}


def head(layout: Layout) -> slice:
    """The coordinates of the classifier: all tensors of the last layer."""
    first = min(entry.start for entry in layout.entries if entry.layer == layout.entries[-1].layer)
    return slice(first, layout.entries[-1].stop)


def list_inside(layout: Layout, part: Part) -> list[bool]:
    """List for each tensor of the layout whether it belongs to a part of the network."""
    first = head(layout).start
    return [part == "all" or (entry.start >= first) == (part == "head") for entry in layout.entries]


def effective_steps(K: Tensor | int, momentum: float) -> Tensor | float:
    """a, how many gradients lie in the displacement of K steps: D = -lr a g if every gradient were g.

    K: number of steps; (C, 1) for a stack of clients.
    momentum: r, of local SGD.

    a = K for plain SGD, (K - r (1 - r^K) / (1 - r)) / (1 - r) with momentum r (FedNova, Wang et al. 2020). Dividing by
    K instead would enlarge the pseudo-gradients of SCAFFOLD and FedCM by up to 1 / (1 - r).
    """
    r = momentum
    return (K - r * (1 - r**K) / (1 - r)) / (1 - r)
