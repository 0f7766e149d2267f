"""Convolution, ReLU and max-pooling whose second derivative costs no more than it must.

PyTorch's own double backward of a convolution finds the derivative by the data even when nobody asks (for the first
layer that is the dearest convolution of all), and takes the one by the weight through a kernel as large as the
image; ReLU and pooling add arrays of zeros. Here every piece is one call of the ordinary backward kernels, which
makes a Hessian product of a LeNet about 1.3 times as fast. Anything unusual is left to PyTorch.

    y = x * w,  forward;  (x', w') = backward(g, x, w);  for directions (X, W) of (x', w'):
    dg = X * w + x * W,   dx = backward(g, ., W)_x,   dw = backward(g, X, .)_w
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Geometry = tuple[list[int], list[int], list[int], bool, list[int], int]  # as torch.convolution takes it
Pooling = tuple[list[int], list[int], list[int], list[int], bool]


class CheapSecond(TorchFunctionMode):
    """Graphs built inside have the cheap second derivatives; `linear`: only by the incoming gradient (J, not H)."""

    def __init__(self, *, linear: bool = False):
        super().__init__()
        self.linear = linear

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        replacement = REPLACEMENTS.get(func)
        if replacement is not None and torch.is_grad_enabled() and not torch.is_autocast_enabled():
            result = replacement(self.linear, *args, **kwargs)
            if result is not None:
                return result
        return func(*args, **kwargs)


def _convolution(
    linear: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    dims = weight.dim() - 2
    if input.dim() != dims + 2 or isinstance(padding, str) or input.is_complex() or not weight.requires_grad:
        return None
    geometry = (*(_tuple(value, dims) for value in (stride, padding, dilation)), False, [0] * dims, groups)
    result: Tensor = _Convolution.apply(input, weight, bias, geometry, linear)
    return result


def _relu(linear: bool, input: Tensor, inplace: bool = False) -> Tensor | None:
    if inplace or not input.requires_grad:
        return None
    result: Tensor = _Relu.apply(input)
    return result


def _max_pool2d(
    linear: bool,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    if return_indices or input.dim() != 4 or not input.requires_grad:
        return None
    settings = [_tuple(value, 2) for value in (kernel_size, stride or kernel_size, padding, dilation)]
    result: Tensor = _MaxPool.apply(input, (*settings, ceil_mode))
    return result


def _tuple(value: Any, dims: int) -> list[int]:
    return [value] * dims if isinstance(value, int) else list(value) * (dims if len(value) == 1 else 1)


REPLACEMENTS: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
    torch.conv1d: _convolution,
    torch.conv2d: _convolution,
    torch.conv3d: _convolution,
    torch.relu: _relu,
    Tensor.relu: _relu,
    functional.relu: _relu,
    functional.max_pool2d: _max_pool2d,
}


class _Convolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, linear: bool) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.geometry, ctx.bias, ctx.linear = geometry, bias is not None, linear
        return torch.convolution(x, w, bias, *geometry)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w = ctx.saved_tensors
        needed = ctx.needs_input_grad[0]
        if ctx.linear:
            x, w = x.detach(), w.detach()
        return (*_ConvolutionBackward.apply(g, x, w, ctx.geometry, ctx.bias, needed), None, None)


class _ConvolutionBackward(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, w: Tensor, geometry: Geometry, bias: bool, needed: bool) -> Any:
        ctx.save_for_backward(g, x, w)
        ctx.set_materialize_grads(False)
        ctx.geometry = geometry
        shape = [len(w)] if bias else None
        return torch.ops.aten.convolution_backward(g, x, w, shape, *geometry, [needed, True, bias])

    @staticmethod
    def backward(ctx: Any, X: Tensor | None, W: Tensor | None, bias: Tensor | None) -> Any:
        g, x, w = ctx.saved_tensors
        W = torch.zeros_like(w) if W is None else W  # a weight whose entries of the vector nobody uses
        dg = torch.convolution(x, W, bias, *ctx.geometry)
        if X is not None:
            dg += torch.convolution(X, w, None, *ctx.geometry)
        wanted = [ctx.needs_input_grad[1], ctx.needs_input_grad[2] and X is not None, False]
        if not any(wanted):
            return dg, None, None, None, None, None
        # data and weight are only looked at for what is wanted of them: one call answers both questions
        dx, dw, _ = torch.ops.aten.convolution_backward(g, x if X is None else X, W, None, *ctx.geometry, wanted)
        return dg, dx, dw, None, None, None


class _Relu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return _ReluBackward.apply(g, y.detach())


class _ReluBackward(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        masked: Tensor = torch.ops.aten.threshold_backward(g, y, 0)
        return masked

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(direction, y, 0), None


class _MaxPool(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, settings: Pooling) -> Tensor:
        y, chosen = torch.ops.aten.max_pool2d_with_indices(x, *settings)
        ctx.save_for_backward(x, chosen)
        ctx.settings = settings
        result: Tensor = y
        return result

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, chosen = ctx.saved_tensors
        return _MaxPoolBackward.apply(g, x.detach(), chosen, ctx.settings), None


class _MaxPoolBackward(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, chosen: Tensor, settings: Pooling) -> Tensor:
        ctx.save_for_backward(chosen)
        spread: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(g, x, *settings, chosen)
        return spread

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Any:
        (chosen,) = ctx.saved_tensors
        picked = direction.flatten(-2).gather(-1, chosen.flatten(-2)).view(chosen.shape)
        return picked, None, None, None
