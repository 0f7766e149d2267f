"""Convolution, BatchNorm, ReLU and max-pooling with cheap second derivatives; others are in `layers` and `attention`.

PyTorch's own double backward of a convolution computes the derivative by the data even when it is not needed (for the
first layer that is the most expensive convolution of all), and takes the one by the weight through a kernel as large
as the image; ReLU and pooling add arrays of zeros. Here every derivative is one product of the ordinary backward, by
the cheaper of two algorithms (`convolutions`). Anything unusual is left to PyTorch.

    y = x * w,  forward;  (x', w') = backward(g, x, w);  for directions (X, W) of (x', w'):
    dg = X * w + x * W,   dx = backward(g, ., W)_x,   dw = backward(g, X, .)_w
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from landscape.kernels import attention, layers
from landscape.kernels.convolutions import ConvolutionProducts, Geometry, Wanted, choose_products

BEFORE = "_before_relu"  # of a tensor that ReLU returned: what it was given
CONVOLVED = "_convolved"  # of a tensor that a convolution returned: what it was given
Pooling = tuple[list[int], list[int], list[int], list[int], bool]  # kernel, stride, padding, dilation, ceil_mode
Sizes = int | Sequence[int]  # one for all axes, or one for each
Gradients = tuple[Tensor | None, ...]


class _Context(FunctionCtx):
    """What torch gives every Function, and what the functions below keep from forward to backward."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]
    products: ConvolutionProducts
    bias: bool  # whether the convolution has one
    linear: bool
    shape: torch.Size
    settings: Pooling
    channels_last: bool


class CheapSecondDerivatives(TorchFunctionMode):
    """A context in which graphs are built with cheap second derivatives.

    linear: whether the second derivative is only by the incoming gradient, as a Jacobian needs it and a Hessian not.
    """

    def __init__(self, *, linear: bool = False):
        super().__init__()
        self.linear = linear

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Collection[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        replacement = REPLACEMENTS.get(func)
        if replacement is not None and torch.is_grad_enabled() and not torch.is_autocast_enabled():
            result = replacement(self.linear, *args, **kwargs)
            if result is not None:
                return result
        return func(*args, **kwargs)


@dataclass(frozen=True)
class _Convolved:
    """What a convolution was given, and which versions of it and of its result belong together."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None
    geometry: Geometry
    versions: tuple[int, int]


def _convolution(
    linear: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor | None:
    dims = weight.dim() - 2
    if input.dim() != dims + 2 or isinstance(padding, str) or input.is_complex() or not weight.requires_grad:
        return None
    stride, padding, dilation = (_repeat(value, dims) for value in (stride, padding, dilation))
    geometry = (stride, padding, dilation, False, [0] * dims, groups)
    result: Tensor = _Convolution.apply(input, weight, bias, geometry, linear)
    versions = (input._version, result._version)
    setattr(result, CONVOLVED, _Convolved(input, weight, bias, geometry, versions))
    return result


def _batch_norm(
    linear: bool,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """BatchNorm with fixed statistics after a convolution: together they are a convolution with other weights.

    torch's second derivatives of BatchNorm take ten passes over the images; those of the weights cost nothing. Without
    a convolution before it, and where batches normalise themselves, BatchNorm is left to torch.
    """
    before = _find_convolution(input)
    if training or running_mean is None or running_var is None or before is None:
        return None
    scale = torch.rsqrt(running_var + eps)
    scale = scale if weight is None else weight * scale
    shift = -running_mean * scale if before.bias is None else (before.bias - running_mean) * scale
    shift = shift if bias is None else shift + bias
    folded = before.weight * scale.view(-1, *(1 for _ in before.weight.shape[1:]))
    result: Tensor = _Convolution.apply(before.input, folded, shift, before.geometry, linear)
    return result


def _find_convolution(y: Tensor) -> _Convolved | None:
    """The convolution that y came from, if neither its input nor y was changed since."""
    before: _Convolved | None = getattr(y, CONVOLVED, None)
    unchanged = before is not None and before.versions == (before.input._version, y._version)
    return before if unchanged else None


def _relu(linear: bool, input: Tensor, inplace: bool = False) -> Tensor | None:
    if inplace or not input.requires_grad:
        return None
    result: Tensor = _Relu.apply(input)
    setattr(result, BEFORE, (input, input._version, result._version))
    return result


def _max_pool2d(
    linear: bool,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    if return_indices or input.dim() != 4 or not input.requires_grad:
        return None
    settings = [_repeat(value, 2) for value in (kernel_size, stride or kernel_size, padding, dilation)]
    before = _find_relu_input(input)
    largest: Tensor = _MaxPool.apply(input if before is None else before, (*settings, ceil_mode))
    return largest if before is None else _relu(linear, largest)


def _find_relu_input(y: Tensor) -> Tensor | None:
    """The input whose ReLU y is, if neither was changed since.

    Pooling first and then ReLU gives the same bits and derivatives, from a quarter of the entries.
    """
    x, *versions = getattr(y, BEFORE, (None,))
    return x if x is not None and versions == [x._version, y._version] else None


def _repeat(value: Sizes, dims: int) -> list[int]:
    return [value] * dims if isinstance(value, int) else list(value) * (dims if len(value) == 1 else 1)


REPLACEMENTS: dict[Callable[..., object], Callable[..., Tensor | None]] = {
    torch.conv1d: _convolution,
    torch.conv2d: _convolution,
    torch.conv3d: _convolution,
    torch.relu: _relu,
    Tensor.relu: _relu,
    functional.relu: _relu,
    functional.max_pool2d: _max_pool2d,
    functional.batch_norm: _batch_norm,
    **layers.REPLACEMENTS,
    **attention.REPLACEMENTS,
}


class _Convolution(Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, linear: bool) -> Tensor:
        ctx.products = choose_products(x, w, geometry)
        ctx.save_for_backward(x, w, ctx.products.prepare_input(x), ctx.products.prepare_weight(w))
        ctx.bias, ctx.linear = bias is not None, linear
        return torch.convolution(x, w, bias, *geometry)

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> Gradients:
        x, w, *known = ctx.saved_tensors
        wanted = (ctx.needs_input_grad[0], True, ctx.bias)
        if ctx.linear:
            x, w = x.detach(), w.detach()
        return (*_ConvolutionBackward.apply(g, x, w, *known, ctx.products, wanted), None, None)


class _ConvolutionBackward(Function):
    """x and w are here for autograd to see; the products are computed from known_x and known_w, which are prepared."""

    @staticmethod
    def forward(
        ctx: _Context,
        g: Tensor,
        x: Tensor,
        w: Tensor,
        known_x: Tensor,
        known_w: Tensor,
        products: ConvolutionProducts,
        wanted: Wanted,
    ) -> Gradients:
        known_g = products.prepare_output(g)
        ctx.save_for_backward(known_g, known_x, known_w)
        ctx.set_materialize_grads(False)
        ctx.products = products
        return products.backward(known_g, known_x, known_w, wanted)

    @staticmethod
    def backward(ctx: _Context, X: Tensor | None, W: Tensor | None, bias: Tensor | None) -> Gradients:
        g, x, w = ctx.saved_tensors
        products, pairs = ctx.products, []
        if X is not None:
            X = products.prepare_input(X)
            pairs.append((X, w))
        if W is not None:  # None: the entries of the vector for this weight are not used
            W = products.prepare_weight(W)
            pairs.append((x, W))
        dg = products.forward(pairs or [(x, torch.zeros_like(w))], bias)
        wanted = (ctx.needs_input_grad[1] and W is not None, ctx.needs_input_grad[2] and X is not None, False)
        dx, dw, _ = products.backward(g, x if X is None else X, w if W is None else W, wanted)
        return dg, dx, dw, None, None, None, None


class _Relu(Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor) -> Tensor:
        y = torch.relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        masked: Tensor = _ReluBackward.apply(g, y.detach())
        return masked


class _ReluBackward(Function):
    @staticmethod
    def forward(ctx: _Context, g: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        masked: Tensor = torch.ops.aten.threshold_backward(g, y, 0)
        return masked

    @staticmethod
    def backward(ctx: _Context, direction: Tensor) -> Gradients:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(direction, y, 0), None


class _MaxPool(Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, settings: Pooling) -> Tensor:
        y, chosen = torch.ops.aten.max_pool2d_with_indices(x, *settings)
        ctx.save_for_backward(chosen)
        ctx.shape, ctx.settings = x.shape, settings
        result: Tensor = y
        return result

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> Gradients:
        return _MaxPoolBackward.apply(g, *ctx.saved_tensors, ctx.shape, ctx.settings), None


class _MaxPoolBackward(Function):
    @staticmethod
    def forward(ctx: _Context, g: Tensor, chosen: Tensor, shape: torch.Size, settings: Pooling) -> Tensor:
        ctx.save_for_backward(chosen)
        ctx.channels_last = not chosen.is_contiguous()
        order = torch.channels_last if ctx.channels_last else torch.contiguous_format
        x = torch.empty(shape, dtype=g.dtype, device=g.device, memory_format=order)  # only its shape is used
        g = g.contiguous(memory_format=order)
        spread: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(g, x, *settings, chosen)
        return spread

    @staticmethod
    def backward(ctx: _Context, direction: Tensor) -> Gradients:
        (chosen,) = ctx.saved_tensors
        if ctx.channels_last:  # images by rows of channels, as they lie in memory
            rows = direction.permute(0, 2, 3, 1).flatten(1, 2).gather(1, chosen.permute(0, 2, 3, 1).flatten(1, 2))
            return rows.unflatten(1, chosen.shape[2:]).permute(0, 3, 1, 2), None, None, None
        picked = direction.flatten(-2).gather(-1, chosen.flatten(-2)).view(chosen.shape)
        return picked, None, None, None
