"""Scaled dot-product attention with cheap second derivatives.

torch composes them from some thirty passes over all pairs of tokens. Here the weights P of the tokens are kept, with
what the first backward pass made of them, and a product takes ten batched matrix products and six passes:

    S = s q k',   P = softmax(S),   y = P v
    (q', k', v') = (s D k, s D' q, P' g),          R = g v' - rowsum(P * g v'),   D = P * R
    for directions (Q, K, V) of (q', k', v'):      E = s (Q k' + q K'),   T = P * (E - rowsum(P * E))
    dg = T v + P V,   dv = T' g,   Z = T * R + P * g V',   N = Z - P * rowsum(Z)
    dq = s (D K + N k),   dk = s (D' Q + N' q)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

Gradients = tuple[Tensor | None, ...]


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]
    linear: bool
    scale: float


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
    """functional.scaled_dot_product_attention; None with a mask, dropout, shared heads, and frozen inputs."""
    plain = attn_mask is None and dropout_p == 0.0 and not enable_gqa and query.dim() >= 2
    tensors = (query, key, value)
    if not plain or not all(one.requires_grad and one.dtype == query.dtype for one in tensors):
        return None
    if query.dtype not in (torch.float32, torch.float64) or key.shape[:-1] != value.shape[:-1]:
        return None
    if query.shape[:-2] != key.shape[:-2] or (is_causal and query.shape[-2] != key.shape[-2]):
        return None
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    rows = [one.reshape(-1, *one.shape[-2:]) for one in tensors]
    mixed: Tensor = _Attention.apply(*rows, scale, is_causal, linear)
    return mixed.view(*query.shape[:-1], value.shape[-1])


class _Attention(Function):
    @staticmethod
    def forward(ctx: _Context, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, linear: bool) -> Tensor:
        scaled = scale * q, scale * k  # once, instead of scaling every product
        scores = torch.bmm(scaled[0], k.mT)
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores.masked_fill_(later, -math.inf)
        weights = torch.softmax(scores, dim=-1)
        ctx.save_for_backward(q, k, v, *scaled, weights)
        ctx.linear, ctx.scale = linear, scale
        return torch.bmm(weights, v)

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> Gradients:
        q, k, v, sq, sk, weights = ctx.saved_tensors
        if not torch.is_grad_enabled():  # inside a product: no third derivative is asked for
            back = _turn(torch.bmm(g, v.mT), weights)
            return torch.bmm(back, sk), torch.bmm(back.mT, sq), torch.bmm(weights.mT, g), None, None, None
        if ctx.linear:
            q, k, v = q.detach(), k.detach(), v.detach()
        return (*_AttentionBackward.apply(g, q, k, v, sq, sk, weights, ctx.scale), None, None, None)


class _AttentionBackward(Function):
    """q and k are needed only as what is differentiated by; the products take sq = s q and sk = s k."""

    @staticmethod
    def forward(
        ctx: _Context,
        g: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sq: Tensor,
        sk: Tensor,
        weights: Tensor,
        scale: float,
    ) -> Gradients:
        rest = torch.bmm(g, v.mT)
        rest -= (weights * rest).sum(-1, keepdim=True)
        back = weights * rest
        ctx.save_for_backward(g, v, sq, sk, weights, rest, back)
        ctx.scale = scale
        return torch.bmm(back, sk), torch.bmm(back.mT, sq), torch.bmm(weights.mT, g)

    @staticmethod
    def backward(ctx: _Context, Q: Tensor, K: Tensor, V: Tensor) -> Gradients:
        g, v, sq, sk, weights, rest, back = ctx.saved_tensors
        turned = _turn(torch.bmm(Q, sk.mT).baddbmm_(sq, K.mT), weights)
        dg = torch.bmm(turned, v).baddbmm_(weights, V)
        if not ctx.needs_input_grad[1]:
            return dg, None, None, None, None, None, None, None
        dv = torch.bmm(turned.mT, g)
        bent = torch.bmm(g, V.mT).mul_(weights).addcmul_(turned, rest)
        bent.addcmul_(weights, bent.sum(-1, keepdim=True), value=-1)
        dq = torch.bmm(back, ctx.scale * K).baddbmm_(bent, sk)
        dk = torch.bmm(back.mT, ctx.scale * Q).baddbmm_(bent.mT, sq)
        return dg, dq, dk, dv, None, None, None, None


def _turn(direction: Tensor, weights: Tensor) -> Tensor:
    """P * (E - rowsum(P * E)), the derivative of the weights P = softmax(S) in the direction E of S."""
    result: Tensor = torch._softmax_backward_data(direction, weights, -1, weights.dtype)
    return result
