"""Attention with cheap second derivatives.

For each head, with queries Q, keys K, values V, a factor c and J(U) = P o U - P rowsum(P o U), the derivative of the
softmax (o: entry by entry):

    P = softmax(c Q K'),  y = P V;    A = g V',  S = J(A),    Q' = c S K,  K' = c S' Q,  V' = P' g

A Hessian product has directions (X, Y, Z) of (Q', K', V'). With E = c (X K' + Q Y') and R = A - rowsum(P o A):

    dg = P Z + J(E) V,    dV = J(E)' g,
    dQ = c (F K + S Y),   dK = c (F' Q + S' X)      with F = G - P rowsum(G),  G = R o J(E) + P o (g Z')

torch composes this from scaled copies of Q and K and some twenty passes over arrays of the size of P, which it keeps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from landscape.kernels.layers import Gradients, is_plain


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]
    factor: float
    linear: bool


def replace_attention(
    linear: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """functional.scaled_dot_product_attention; None with dropout, a trainable mask, or heads that are shared."""
    alike = query.shape[:-2] == key.shape[:-2] == value.shape[:-2] and not enable_gqa
    trainable = any(one.requires_grad for one in (query, key, value))
    masked = attn_mask is not None and attn_mask.requires_grad
    if not alike or not trainable or masked or dropout_p or query.dim() < 3 or not is_plain(query, key, value):
        return None
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -torch.inf)
    # torch's own kernel, so that the outputs keep their bits; its softmax gives rows that are masked completely zeros
    found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_attention_math(
        query.detach(), key.detach(), value.detach(), attn_mask, 0.0, is_causal, scale=scale
    )
    # heads that lie together, once and not in every product
    q, k, v, P = (_stack_heads(one) for one in (query, key, value, found[1]))
    mixed: Tensor = _Attention.apply(q, k, v, found[0], P, factor, linear)
    return mixed


REPLACEMENTS: dict[Callable[..., object], Callable[..., Tensor | None]] = {
    functional.scaled_dot_product_attention: replace_attention,
}


def _stack_heads(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, *tensor.shape[-2:])


def _softmax_back(U: Tensor, P: Tensor) -> Tensor:
    """J(U)."""
    turned: Tensor = torch.ops.aten._softmax_backward_data(U, P, -1, U.dtype)
    return turned


def _multiply(c: float, one: Tensor, other: Tensor) -> Tensor:
    """c times the matrix products."""
    return torch.baddbmm(one.new_empty(1), one, other, beta=0, alpha=c)


class _Attention(Function):
    """y and P were computed before; only their derivatives are computed here."""

    @staticmethod
    def forward(
        ctx: _Context, q: Tensor, k: Tensor, v: Tensor, y: Tensor, P: Tensor, factor: float, linear: bool
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, P)
        ctx.factor, ctx.linear = factor, linear
        return y.view_as(y)

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> Gradients:
        q, k, v, P = ctx.saved_tensors
        g = _stack_heads(g)
        if not torch.is_grad_enabled():  # inside a product: no third derivative is asked for
            S = _softmax_back(torch.bmm(g, v.mT), P)
            found: Gradients = _multiply(ctx.factor, S, k), _multiply(ctx.factor, S.mT, q), torch.bmm(P.mT, g)
        else:
            q, k, v = (one.detach() for one in (q, k, v)) if ctx.linear else (q, k, v)
            found = _AttentionBackward.apply(g, q, k, v, P, ctx.factor)
        return (*found, None, None, None, None)


class _AttentionBackward(Function):
    @staticmethod
    def forward(ctx: _Context, g: Tensor, q: Tensor, k: Tensor, v: Tensor, P: Tensor, factor: float) -> Gradients:
        A = torch.bmm(g, v.mT)
        R = A - (P * A).sum(-1, keepdim=True)
        S = P * R
        ctx.save_for_backward(g, q, k, v, P, R)
        ctx.factor = factor
        return _multiply(factor, S, k), _multiply(factor, S.mT, q), torch.bmm(P.mT, g)

    @staticmethod
    def backward(ctx: _Context, X: Tensor, Y: Tensor, Z: Tensor) -> Gradients:
        g, q, k, v, P, R = ctx.saved_tensors
        c, wanted = ctx.factor, ctx.needs_input_grad
        turned = _softmax_back(_multiply(c, X, k.mT).baddbmm_(q, Y.mT, alpha=c), P)
        dg = torch.bmm(P, Z).baddbmm_(turned, v)
        dq = dk = dv = None
        if wanted[1] or wanted[2]:
            F = (P * torch.bmm(g, Z.mT)).addcmul_(R, turned)
            F.addcmul_(P, F.sum(-1, keepdim=True), value=-1)
            S = P * R
            dq = _multiply(c, F, k).baddbmm_(S, Y, alpha=c) if wanted[1] else None
            dk = _multiply(c, F.mT, q).baddbmm_(S.mT, X, alpha=c) if wanted[2] else None
        if wanted[3]:
            dv = torch.bmm(turned.mT, g)
        return dg, dq, dk, dv, None, None
