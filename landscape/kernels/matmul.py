"""Products of large matrices by oneDNN.

torch multiplies matrices of the CPU by MKL, which on AMD's processors takes 2.3 times as long as oneDNN, the library of
its convolutions (a product of 8,320 x 384 with 384 x 128: 8.3 ms and 3.5 ms); on Intel's both are equally fast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.nn import functional
from torch.overrides import TorchFunctionMode

LARGE = 2**21  # multiplications from which on oneDNN is faster; it takes ten microseconds to begin
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def multiply(x: Tensor, w: Tensor, bias: Tensor | None = None, added: Tensor | None = None) -> Tensor:
    """x w' + bias + added, for x (m, k), w (n, k), bias (n,) and added (m, n), which may be overwritten.

    >>> multiply(torch.ones(1, 2), torch.eye(2), bias=torch.tensor([1.0, 2.0])).tolist()
    [[2.0, 3.0]]
    """
    if is_large(x, w) and has_operation():
        operation = torch.ops.mkldnn._linear_pointwise
        found: Tensor = (
            operation(x, w, bias, "none", [], "") if added is None else operation.binary(x, added, w, bias, "add")
        )
        return found
    if added is None:
        return x @ w.T if bias is None else torch.addmm(bias, x, w.T)
    product = added.addmm_(x, w.T)
    return product if bias is None else product.add_(bias)


def multiply_transposed(one: Tensor, other: Tensor) -> Tensor:
    """one' other; oneDNN copies a transposed first factor, so that is the narrower of the two."""
    if one.shape[1] <= other.shape[1]:
        return multiply(one.T, other.T)
    return multiply(other.T, one.T).T


def is_large(x: Tensor, w: Tensor) -> bool:
    """Whether oneDNN is faster for x w', for x (..., k) and w (n, k): in float32 on the CPU, with enough numbers."""
    plain = x.dtype == w.dtype == torch.float32 and x.device.type == w.device.type == "cpu"
    return plain and w.dim() == 2 and x.numel() * len(w) >= LARGE


@cache
def has_operation() -> bool:
    """Whether this torch has the product by oneDNN, with which its compiler fuses layers."""
    available = bool(torch.backends.mkldnn.is_available())
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class LargeProducts(TorchFunctionMode):
    """A context in which large linear layers and their gradients are computed by oneDNN, others as usual."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Collection[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func is functional.linear and not torch.is_autocast_enabled():
            result = _replace(*args, **(kwargs or {}))  # type: ignore[arg-type]
            if result is not None:
                return result
        return func(*args, **(kwargs or {}))


def _replace(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """functional.linear by oneDNN; None where torch computes it."""
    if not is_large(input, weight) or not has_operation():
        return None
    result: Tensor = _Linear.apply(input, weight, bias)
    return result


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]


class _Linear(Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, w)
        return multiply(x.reshape(-1, x.shape[-1]), w, bias).view(*x.shape[:-1], len(w))

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> Gradients:
        x, w = ctx.saved_tensors
        by_x, by_w, by_bias = ctx.needs_input_grad
        rows, inputs = g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1])
        if torch.is_grad_enabled():  # the gradient itself will be differentiated: by torch, which knows how
            dx, dw = rows @ w if by_x else None, rows.T @ inputs if by_w else None
        else:
            dx = multiply(rows, w.T) if by_x else None
            dw = multiply_transposed(rows, inputs) if by_w else None
        return None if dx is None else dx.view_as(x), dw, rows.sum(0) if by_bias else None
