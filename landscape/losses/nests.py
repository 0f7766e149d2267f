"""Nestings of tensors: a tensor, or tuples, lists, named tuples and mappings of nestings, to any depth.

Other leaves (numbers, None, strings) are carried along. A nesting that holds only tensors with one leading length,
scalars, numbers and None can be cut by examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Nest = Any  # a recursive type that mypy and users would both find harder to read than this line
SHARED = (bool, int, float, complex, type(None))  # leaves that mean the same for every example


def map_tensors(function: Callable[[Tensor], Tensor], value: Nest) -> Nest:
    """The same nesting with every tensor replaced by function(tensor).

    >>> map_tensors(lambda tensor: tensor + 1, {"ids": torch.zeros(2), "more": (torch.ones(1), "x")})
    {'ids': tensor([1., 1.]), 'more': (tensor([2.]), 'x')}
    """
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {name: map_tensors(function, part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(function, part) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(function, part) for part in value)
    return value


def leaves(value: Nest) -> Iterator[Nest]:
    """Everything inside that is not itself a nesting, in order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def tensors(value: Nest) -> list[Tensor]:
    """Every tensor inside, in order."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)]


def lengths(value: Nest) -> list[int]:
    """The leading lengths of the tensors inside that have one."""
    return [len(tensor) for tensor in tensors(value) if tensor.ndim]


def can_be_cut(value: Nest) -> bool:
    """Whether examples can be chosen: all tensors with axes have one leading length, nothing else lists examples."""
    known = all(isinstance(leaf, (Tensor, *SHARED)) for leaf in leaves(value))
    return known and len(set(lengths(value))) == 1


def take(value: Nest, index: slice | Tensor) -> Nest:
    """The chosen examples: every tensor indexed along its first axis; scalars stay."""
    return map_tensors(lambda tensor: tensor[_place(index, tensor)] if tensor.ndim else tensor, value)


def _place(index: slice | Tensor, tensor: Tensor) -> slice | Tensor:
    return index.to(tensor.device) if isinstance(index, Tensor) else index


def form(value: Nest) -> Nest:
    """What two nestings must have in common so that their examples can be joined."""
    if isinstance(value, Tensor):
        return (tuple(value.shape[1:]), value.dtype) if value.ndim else ("scalar", value.item())
    if isinstance(value, Mapping):
        return {name: form(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [form(part) for part in value]
    return value


def join(values: Sequence[Nest]) -> Nest:
    """Join nestings of one form: their tensors are concatenated along the first axis."""
    first = values[0]
    if len(values) == 1:
        return first
    parts = zip(*(tensors(value) for value in values), strict=True)
    joined = iter([torch.cat(part) if part[0].ndim else part[0] for part in parts])
    return map_tensors(lambda _: next(joined), first)


def describe(value: Nest) -> str:
    """The shapes inside, for messages.

    >>> describe({"ids": torch.zeros(2, 3), "more": (torch.zeros(2), 1)})
    '{ids: (2, 3), more: ((2,), int)}'
    """
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {describe(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(describe(part) for part in value) + ")"
    return type(value).__name__
