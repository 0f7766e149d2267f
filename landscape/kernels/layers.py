"""Linear layers, GELU and LayerNorm with cheap second derivatives.

A Hessian product takes each of them three times: the direction of its gradients, and the derivative of its backward
pass by the incoming gradient and by its input. torch composes those of GELU and LayerNorm from dozens of passes over
memory, which take as long as all matrix products of a small transformer. Here whatever does not depend on the vector
is computed once, with the graph:

    y = x w' + b     dg = X w' + x W' + B,       dx = g W,      dw = g' X       for directions (X, W, B) of (x', w', b')
    y = f(x)         dg = X f'(x),               dx = X (g f''(x))
    y = norm(x)      dg = w T + W z + B,         dx = r P(W g) - r (z mean(X x') + x' mean(X z) + T mean(w g z)),
                     dw = sum(g T)               with T = r P(X),  z = (x - mean) r,  P(u) = u - mean(u) - z mean(u z)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from landscape.kernels.matmul import multiply, multiply_transposed

Gradients = tuple[Tensor | None, ...]
Wanted = tuple[bool, bool, bool]  # derivative by input, weight, bias


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]
    linear: bool
    wanted: Wanted


def replace_linear(linear: bool, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """functional.linear; None where torch must compute it: frozen weights and mixed precision."""
    if not weight.requires_grad or weight.dim() != 2 or not is_plain(input, weight):
        return None
    result: Tensor = _Linear.apply(input, weight, bias, linear)
    return result


def replace_gelu(linear: bool, input: Tensor, *, approximate: str = "none") -> Tensor | None:
    """functional.gelu; None for its approximation by tanh."""
    if approximate != "none" or not input.requires_grad or not is_plain(input):
        return None
    result: Tensor = _Gelu.apply(input, linear)
    return result


def replace_layer_norm(
    linear: bool,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """functional.layer_norm over the last axis; None over several, and without trainable weight and bias."""
    if weight is None or bias is None or not (weight.requires_grad and bias.requires_grad):
        return None
    if len(normalized_shape) != 1 or not is_plain(input, weight, bias):
        return None
    result: Tensor = _LayerNorm.apply(input, weight, bias, eps, linear)
    return result


def is_plain(*tensors: Tensor) -> bool:
    """Whether all are dense and have one precision, float32 or float64."""
    first = tensors[0]
    return first.dtype in (torch.float32, torch.float64) and all(
        one.dtype == first.dtype and one.layout == torch.strided for one in tensors
    )


REPLACEMENTS: dict[Callable[..., object], Callable[..., Tensor | None]] = {
    functional.linear: replace_linear,
    functional.gelu: replace_gelu,
    functional.layer_norm: replace_layer_norm,
}


def _rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


class _Linear(Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, w: Tensor, bias: Tensor | None, linear: bool) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.linear = linear
        ctx.wanted = (x.requires_grad, True, bias is not None and bias.requires_grad)
        return multiply(_rows(x), w, bias).view(*x.shape[:-1], len(w))

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> Gradients:
        x, w = ctx.saved_tensors
        if not torch.is_grad_enabled():  # inside a product: no third derivative is asked for
            return (*_multiply(g, x, w, ctx.wanted), None)
        if ctx.linear:
            x, w = x.detach(), w.detach()
        return (*_LinearBackward.apply(g, x, w, ctx.wanted), None)


def _multiply(g: Tensor, x: Tensor, w: Tensor, wanted: Wanted) -> Gradients:
    """g w, g' x and the sum of g, as wanted."""
    used = find_used_rows(_rows(g))
    rows = used.pick(g)
    return (
        used.spread(multiply(rows, w.T), x.shape) if wanted[0] else None,
        multiply_transposed(rows, used.pick(x)) if wanted[1] else None,
        rows.sum(0) if wanted[2] else None,
    )


@dataclass(frozen=True)
class UsedRows:
    """Which rows of a gradient are not zero; None: all of them may be."""

    index: Tensor | None

    def pick(self, tensor: Tensor) -> Tensor:
        """The rows of a tensor that are used."""
        return _rows(tensor) if self.index is None else _rows(tensor)[self.index]

    def spread(self, rows: Tensor, shape: torch.Size) -> Tensor:
        """A tensor of this shape with these rows where they are used, and zeros elsewhere."""
        if self.index is None:
            return rows.view(shape)
        return rows.new_zeros(math.prod(shape[:-1]), shape[-1]).index_copy_(0, self.index, rows).view(shape)


def find_used_rows(g: Tensor) -> UsedRows:
    """The rows (rows, entries) of a gradient that are not zero, if they are few.

    In the last block of a transformer that classifies by its first token, or whose other tokens are padding, nearly all
    rows are zero: four of the six products with its layers need only the others. Looks at one entry of each row before
    it looks at all; on the CPU only, since a device would have to be waited for.
    """
    if g.device.type != "cpu" or 2 * int(torch.count_nonzero(g[:, :1])) > len(g):
        return UsedRows(None)
    index = g.abs().amax(dim=1).nonzero()[:, 0]
    return UsedRows(index if 2 * len(index) <= len(g) else None)


class _LinearBackward(Function):
    @staticmethod
    def forward(ctx: _Context, g: Tensor, x: Tensor, w: Tensor, wanted: Wanted) -> Gradients:
        ctx.save_for_backward(g, x, w)
        ctx.set_materialize_grads(False)
        return _multiply(g, x, w, wanted)

    @staticmethod
    def backward(ctx: _Context, X: Tensor | None, W: Tensor | None, bias: Tensor | None) -> Gradients:
        g, x, w = ctx.saved_tensors
        pairs = [(one, other) for one, other in ((x, W), (X, w)) if one is not None and other is not None]
        dg = None if bias is None else bias.expand_as(g)
        if pairs:
            dg = _add_products(pairs, bias).view(g.shape)
        wanted = (ctx.needs_input_grad[1] and W is not None, ctx.needs_input_grad[2] and X is not None, False)
        dx, dw, _ = _multiply(g, x if X is None else X, w if W is None else W, wanted)
        return dg, dx, dw, None


def _add_products(pairs: Sequence[tuple[Tensor, Tensor]], bias: Tensor | None) -> Tensor:
    """The sum of x w' over pairs (x, w), plus a bias, in one array."""
    (x, w), *rest = pairs
    total = multiply(_rows(x), w, bias)
    for x, w in rest:
        total = multiply(_rows(x), w, added=total)
    return total


class _Gelu(Function):
    """x Phi(x), with the normal distribution Phi and its density phi: f' = Phi + x phi, f'' = (2 - x^2) phi."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, linear: bool) -> Tensor:
        ctx.save_for_backward(x, torch.addcmul(0.5 * torch.special.erfc(-math.sqrt(0.5) * x), x, _density(x)))
        ctx.linear = linear
        return functional.gelu(x)

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> Gradients:
        x, slope = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return g * slope, None
        return _GeluBackward.apply(g, x.detach() if ctx.linear else x, slope), None


def _density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x.square()) / math.sqrt(2 * math.pi)


class _GeluBackward(Function):
    @staticmethod
    def forward(ctx: _Context, g: Tensor, x: Tensor, slope: Tensor) -> Tensor:
        bend = g * (2 - x.square()) * _density(x) if x.requires_grad else g
        ctx.save_for_backward(slope, bend)
        return g * slope

    @staticmethod
    def backward(ctx: _Context, X: Tensor) -> Gradients:
        slope, bend = ctx.saved_tensors
        return X * slope, X * bend if ctx.needs_input_grad[1] else None, None


class _LayerNorm(Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, w: Tensor, bias: Tensor, eps: float, linear: bool) -> Tensor:
        y, mean, scale = torch.ops.aten.native_layer_norm(x, x.shape[-1:], w, bias, eps)
        ctx.save_for_backward(x, w, bias, mean, scale)
        ctx.linear, ctx.wanted = linear, (x.requires_grad, True, True)
        result: Tensor = y
        return result

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> Gradients:
        x, w, bias, mean, scale = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return (*_normalise_back(g, x, mean, scale, w, bias, ctx.wanted), None, None)
        if ctx.linear:
            x, w = x.detach(), w.detach()
        return (*_LayerNormBackward.apply(g, x, w, bias.detach(), mean, scale, ctx.wanted), None, None)


def _normalise_back(
    g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, w: Tensor | None, bias: Tensor | None, wanted: Wanted
) -> tuple[Tensor, Tensor, Tensor]:
    """r P(w g), the sum of g z and the sum of g."""
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_layer_norm_backward(
        g, x, x.shape[-1:], mean, scale, w, bias, list(wanted)
    )
    return found


class _LayerNormBackward(Function):
    @staticmethod
    def forward(
        ctx: _Context, g: Tensor, x: Tensor, w: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, wanted: Wanted
    ) -> Gradients:
        data, weight, shift = _normalise_back(g, x, mean, scale, w, bias, (True, True, True))
        normal = (x - mean) * scale
        share = scale * (w * g * normal).mean(-1, keepdim=True)
        ctx.save_for_backward(g, x, w, mean, scale, normal, data, share)
        ctx.set_materialize_grads(False)
        return data if wanted[0] else None, weight, shift

    @staticmethod
    def backward(ctx: _Context, X: Tensor | None, W: Tensor | None, bias: Tensor | None) -> Gradients:
        g, x, w, mean, scale, normal, data, share = ctx.saved_tensors
        only_data: Wanted = (True, False, False)
        dw = None
        dg = torch.zeros_like(g) if bias is None else bias.expand_as(g)
        dx = torch.zeros_like(x)
        if W is not None:
            dg = torch.addcmul(dg, normal, W)
            if ctx.needs_input_grad[1]:
                dx = _normalise_back(g, x, mean, scale, W, None, only_data)[0]
        if X is not None:
            turned = _normalise_back(X, x, mean, scale, None, None, only_data)[0]
            dg = torch.addcmul(dg, turned, w)
            if ctx.needs_input_grad[1]:
                dx.addcmul_(normal, scale * (X * data).mean(-1, keepdim=True), value=-1)
                dx.addcmul_(data, scale * (X * normal).mean(-1, keepdim=True), value=-1)
                dx.addcmul_(turned, share, value=-1)
            if ctx.needs_input_grad[2]:
                dw = _rows(g * turned).sum(0)
        return dg, dx if ctx.needs_input_grad[1] else None, dw, None, None, None, None
