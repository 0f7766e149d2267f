"""Curvature of few examples: the weights of a first linear layer count only along the inputs that it sees.

The layer computes X w' from N rows of data X, which span at most N directions. With orthonormal rows Q of that span,
X = Z Q and X w' = Z (w Q')': the loss is that of a smaller network with inputs Z and weights w Q'. Its curvature is
that of the original; along all other directions of w the original has none. For 256 images and a layer of 512 units
on 3072 pixels a product takes a twelfth of that layer's operations, and vectors a fifth of their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from landscape.layout import Entry, Layout
from landscape.operators import Operator

LEAST = 2**16  # entries that must be saved: tiny networks are left as they are
PRODUCTS = 4  # after which the operations that are saved must make up for those of finding Q


@dataclass(frozen=True)
class InputSpan:
    """The span of a first layer's inputs, and the layout of the vectors that are compressed to it.

    entry: of the layer's weight in the original layout.
    basis: (rank, inputs) orthonormal rows Q.
    layout: of compressed vectors.
    """

    entry: Entry
    basis: Tensor
    layout: Layout

    @classmethod
    def of(cls, layout: Layout, entry: Entry, inputs: Tensor) -> InputSpan:
        """The span of these rows (examples, inputs) of data."""
        basis = torch.linalg.qr(inputs.T)[0].T.contiguous()
        saved = entry.shape[0] * (entry.shape[1] - len(basis))
        shape = (entry.shape[0], len(basis))
        smaller = replace(entry, shape=shape, stop=entry.stop - saved, filter_shape=shape, filter_axes=(1,))
        entries = tuple(
            smaller
            if one is entry
            else replace(one, start=one.start - saved, stop=one.stop - saved)
            if one.start > entry.start
            else one
            for one in layout.entries
        )
        return cls(entry, basis, Layout(entries))

    def compress(self, rows: Tensor) -> Tensor:
        """Rows (..., size) of the original layout along the span: what curvature sees of them."""
        weight = (
            rows[..., self.entry.start : self.entry.stop].reshape(*rows.shape[:-1], *self.entry.shape) @ self.basis.T
        )
        return torch.cat([rows[..., : self.entry.start], weight.flatten(-2), rows[..., self.entry.stop :]], dim=-1)

    def expand(self, rows: Tensor) -> Tensor:
        """Compressed rows in the original layout, zero outside the span; lengths and angles stay as they are."""
        inner = self.layout.entry(self.entry.name)
        weight = rows[..., inner.start : inner.stop].reshape(*rows.shape[:-1], *inner.shape) @ self.basis
        return torch.cat([rows[..., : inner.start], weight.flatten(-2), rows[..., inner.stop :]], dim=-1)

    @contextmanager
    def substitute(self, weight: Tensor, compressed: Tensor) -> Iterator[None]:
        """Inside the block the layer computes with its compressed weight; refused if its own is used otherwise.

        weight: what the model is bound to.
        compressed: the leaf that takes its place.
        """
        mode = _Substitution(weight, compressed, self.basis)
        with mode:
            yield
        if mode.calls != 1:
            raise WeightUseError


class SpanCurvature(Protocol):
    """What a compressed operator needs to know of the operator whose vectors it compresses."""

    dtype: torch.dtype
    device: torch.device
    workers: int

    @property
    def hint(self) -> Tensor | None:
        """A cheap vector likely to be rich in outlying eigenvectors."""

    def multiply(self, rows: Tensor) -> Tensor:
        """Multiply compressed rows, without weight decay."""

    def decay(self, products: Tensor, rows: Tensor) -> Tensor:
        """Add what weight decay adds to products with these rows."""


class CompressedCurvature(Operator):
    """The products of an operator whose vectors are compressed, on the compressed ones themselves."""

    def __init__(self, whole: SpanCurvature, span: InputSpan):
        self.whole, self.span = whole, span
        self.layout: Layout = span.layout
        self.size, self.dtype, self.device = span.layout.size, whole.dtype, whole.device
        self.workers = whole.workers

    def _find_hint(self) -> Tensor | None:
        return None if self.whole.hint is None else self.span.compress(self.whole.hint)

    def _product(self, rows: Tensor) -> Tensor:
        return self.whole.decay(self.whole.multiply(rows), rows)


class WeightUseError(RuntimeError):
    """The weight of a compressed layer has another use, so that other directions of it count as well."""


class _Substitution(TorchFunctionMode):
    def __init__(self, weight: Tensor, compressed: Tensor, basis: Tensor):
        super().__init__()
        self.weight, self.compressed, self.basis = weight, compressed, basis
        self.calls = 0

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Collection[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func is functional.linear and len(args) > 1 and args[1] is self.weight and isinstance(args[0], Tensor):
            along = args[0] @ self.basis.T
            off = torch.linalg.vector_norm(args[0] - along @ self.basis)
            if args[0].requires_grad or off > 1e-4 * torch.linalg.vector_norm(args[0]):
                raise WeightUseError
            self.calls += 1
            return functional.linear(along, self.compressed, *args[2:], **kwargs)  # type: ignore[arg-type]
        if any(one is self.weight for one in _list_arguments([*args, *kwargs.values()])):
            raise WeightUseError
        return func(*args, **kwargs)


def _list_arguments(values: Sequence[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _list_arguments(value)
        else:
            yield value


def find_candidates(layout: Layout, count: int) -> list[Entry]:
    """Weights whose layers would be worth compressing for `count` examples, were they the first."""
    return [
        entry
        for entry in layout.parameters
        if entry.kind == "weight" and len(entry.names) == 1 and len(entry.shape) == 2 and _is_worthwhile(entry, count)
    ]


def _is_worthwhile(entry: Entry, rows: int) -> bool:
    """By counting: a product saves two matrix products of the layer; Q costs 4 inputs rows^2 operations."""
    outputs, inputs = entry.shape
    saved = outputs * (inputs - rows)
    return saved >= LEAST and PRODUCTS * 4 * rows * saved >= 4 * inputs * rows**2


class _ReachedError(Exception):
    """Ends a forward pass as soon as the first layer was reached."""


class _Recorder(TorchFunctionMode):
    """Records what the first of some linear layers is given, and stops there."""

    def __init__(self, weights: Sequence[Tensor]):
        super().__init__()
        self.weights = weights
        self.inputs: Tensor | None = None
        self.which = -1

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Collection[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func is functional.linear and len(args) > 1 and isinstance(args[0], Tensor):
            found = [index for index, weight in enumerate(self.weights) if args[1] is weight]
            if found:
                if not args[0].requires_grad:
                    self.inputs, self.which = args[0].detach().flatten(0, -2), found[0]
                raise _ReachedError
        return func(*args, **(kwargs or {}))


def record_inputs(weights: Sequence[Tensor], forward: Callable[[], object]) -> tuple[int, Tensor] | None:
    """Which of the weights is the first to be used in a linear layer, and the rows that it is given.

    weights: leaves that a model is bound to.
    forward: passes examples through the model.

    None if no layer is reached, or if what it is given depends on parameters.
    """
    recorder = _Recorder(weights)
    try:
        with recorder:
            forward()
    except _ReachedError:
        pass
    return None if recorder.inputs is None else (recorder.which, recorder.inputs)
