"""The three products of a convolution, for operands of which all but one stay the same from product to product.

    y = x * w      forward            bilinear in an input x (N, C, ..), a weight w (O, C, ..)
    x' = g . w     backward, data     and a gradient g of the output (N, O, ..)
    w' = g . x     backward, weight

A Hessian product takes six of them, and five operands of the six pairs are known before it begins. `DirectProducts`
calls torch's kernels. `FourierProducts` prepares operands once, as their values at F frequencies, where each of the
three products is one small matrix product per frequency: 8 F flops instead of 2 k^2 H W for a pair of channels. What
remains in every product are the transforms of the new operand, also matrix products, restricted to the entries that
are not zero. For the second layer of the LeNet of the federated papers (64 channels, 5 x 5 on 14 x 14) that is a third
of the operations and half of the time.

Stride 1 only. The transforms are circular of the size of the padded input, so none of the products wraps around.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor, nn

Geometry = tuple[list[int], list[int], list[int], bool, list[int], int]  # as torch.convolution takes it
Wanted = tuple[bool, bool, bool]  # derivative by data, weight, bias
Derivatives = tuple[Tensor | None, Tensor | None, Tensor | None]
WORTH = 0.5  # of the direct operations: above, what is saved is lost to smaller products (ResNet, VGG: no gain at 0.6)
ROOM = 2.0  # a weight's frequencies may take this much of the memory of a chunk's, as every chunk keeps them


class ConvolutionProducts(Protocol):
    """An algorithm for the three products. Each operand is prepared once; the products take prepared operands."""

    def prepare_input(self, x: Tensor) -> Tensor:
        """Prepare an input, or a direction of one."""

    def prepare_output(self, g: Tensor) -> Tensor:
        """Prepare a gradient of the output."""

    def prepare_weight(self, w: Tensor) -> Tensor:
        """Prepare a weight, or a direction of one."""

    def forward(self, pairs: Sequence[tuple[Tensor, Tensor]], bias: Tensor | None) -> Tensor:
        """The sum of x * w over pairs (x, w), plus a bias."""

    def backward(self, g: Tensor, x: Tensor, w: Tensor, wanted: Wanted) -> Derivatives:
        """g . w, g . x and the sum of g, as wanted; an operand that is not needed only gives its shape."""


def choose_products(x: Tensor, w: Tensor, geometry: Geometry) -> ConvolutionProducts:
    """The algorithm with fewer operations; not the faster one by a clock, so that bits do not depend on the machine.

    x: an input (N, C, ...).
    w: a weight (O, C, ...).
    geometry: stride, padding, dilation, ... as torch.convolution takes them.
    """
    stride, padding, dilation, _, _, groups = geometry
    plain = w.dim() == 4 and groups == 1 and set(stride) == set(dilation) == {1}
    # elsewhere torch's kernels have tricks of their own, and half precision has no digits to lose
    suited = plain and x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if suited and _is_worthwhile(x.shape, w.shape, padding):
        return _make_fourier(tuple(x.shape[2:]), tuple(w.shape[2:]), tuple(padding), x.dtype)
    return DirectProducts(geometry)


def wants_channels_last(module: nn.Module) -> bool:
    """Whether products of this model are faster on channels-last images: with convolutions, by 10 to 25 %.

    GroupNorm and InstanceNorm, whose derivatives torch takes image by image, lose more than convolutions gain.
    """
    layers = list(module.modules())
    normed = any(isinstance(layer, (nn.GroupNorm, nn.InstanceNorm2d)) for layer in layers)
    return not normed and any(isinstance(layer, nn.Conv2d) for layer in layers)


@dataclass(frozen=True)
class DirectProducts:
    """Products by torch's own kernels; nothing is prepared."""

    geometry: Geometry

    def prepare_input(self, x: Tensor) -> Tensor:
        return x

    prepare_output = prepare_weight = prepare_input

    def forward(self, pairs: Sequence[tuple[Tensor, Tensor]], bias: Tensor | None) -> Tensor:
        (x, w), *rest = pairs
        y = torch.convolution(x, w, bias, *self.geometry)
        for x, w in rest:
            y += torch.convolution(x, w, None, *self.geometry)
        return y

    def backward(self, g: Tensor, x: Tensor, w: Tensor, wanted: Wanted) -> Derivatives:
        if not any(wanted):
            return None, None, None
        shape = [len(w)] if wanted[2] else None
        found: Derivatives = torch.ops.aten.convolution_backward(g, x, w, shape, *self.geometry, list(wanted))
        return found


@dataclass(frozen=True, eq=False)
class FourierProducts:
    """Products at each of F frequencies.

    Prepared inputs and outputs have shape (2, F, N, C), prepared weights (2, F, C, O): real and imaginary parts.

    y = x conj(w),  x' = g w,  w' = x conj(g):  each four real products, on blocks that stay in the cache.
    """

    sizes: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]  # of input, output and weight
    waves: tuple[Tensor, Tensor, Tensor]  # (2 F, entries): the transform of each
    back: tuple[Tensor, Tensor, Tensor]  # (2, entries, F): the inverse transform of each

    def prepare_input(self, x: Tensor) -> Tensor:
        return self._spectrum(x, 0)

    def prepare_output(self, g: Tensor) -> Tensor:
        return self._spectrum(g, 1)

    def prepare_weight(self, w: Tensor) -> Tensor:
        outputs, inputs = w.shape[:2]
        return (self.waves[2] @ w.permute(2, 3, 1, 0).reshape(-1, inputs * outputs)).view(2, -1, inputs, outputs)

    def forward(self, pairs: Sequence[tuple[Tensor, Tensor]], bias: Tensor | None) -> Tensor:
        (x, w), *rest = pairs
        real = torch.bmm(x[0], w[0]).baddbmm_(x[1], w[1])
        imaginary = torch.bmm(x[1], w[0]).baddbmm_(x[0], w[1], alpha=-1)
        for x, w in rest:
            real.baddbmm_(x[0], w[0]).baddbmm_(x[1], w[1])
            imaginary.baddbmm_(x[1], w[0]).baddbmm_(x[0], w[1], alpha=-1)
        y = self._entries(real, imaginary, 1)
        return y if bias is None else y.add_(bias[:, None, None])

    def backward(self, g: Tensor, x: Tensor, w: Tensor, wanted: Wanted) -> Derivatives:
        data = weight = bias = None
        if wanted[0]:
            real = torch.bmm(g[0], w[0].mT).baddbmm_(g[1], w[1].mT, alpha=-1)
            imaginary = torch.bmm(g[1], w[0].mT).baddbmm_(g[0], w[1].mT)
            data = self._entries(real, imaginary, 0)
        if wanted[1]:
            real = torch.bmm(g[0].mT, x[0]).baddbmm_(g[1].mT, x[1])
            imaginary = torch.bmm(g[0].mT, x[1]).baddbmm_(g[1].mT, x[0], alpha=-1)
            flat = self.back[2][0] @ real.flatten(1) + self.back[2][1] @ imaginary.flatten(1)
            weight = flat.view(*self.sizes[2], *real.shape[1:]).permute(2, 3, 0, 1)
        if wanted[2]:
            bias = g[0, 0].sum(dim=0)  # the first frequency is the sum
        return data, weight, bias

    def _spectrum(self, maps: Tensor, which: int) -> Tensor:
        count, channels = maps.shape[:2]
        values = torch.matmul(self.waves[which], maps.permute(0, 2, 3, 1).reshape(count, -1, channels))
        return values.view(count, 2, -1, channels).permute(1, 2, 0, 3)

    def _entries(self, real: Tensor, imaginary: Tensor, which: int) -> Tensor:
        maps = torch.matmul(self.back[which][0], real.transpose(0, 1))
        maps += torch.matmul(self.back[which][1], imaginary.transpose(0, 1))
        return maps.view(len(maps), *self.sizes[which], -1).permute(0, 3, 1, 2)


def _is_worthwhile(x: Sequence[int], w: Sequence[int], padding: Sequence[int]) -> bool:
    """Whether a Hessian product has clearly fewer operations at frequencies, without much more memory."""
    (count, inputs, *size), (outputs, _, *kernel) = x, w
    wide = [s + 2 * p for s, p in zip(size, padding, strict=True)]
    out = [s - k + 1 for s, k in zip(wide, kernel, strict=True)]
    if min(out) < 1:
        return False  # torch says what is wrong
    frequencies = math.prod(wide) // 2 + 2
    direct = 6 * 2 * math.prod(kernel) * math.prod(out) * inputs * outputs
    transforms = 4 * frequencies * (3 * math.prod(size) * inputs + 2 * math.prod(out) * outputs)
    at_frequencies = 6 * 8 * frequencies * inputs * outputs
    weights = 3 * 4 * frequencies * math.prod(kernel) * inputs * outputs / count
    roomy = inputs * outputs <= ROOM * count * (inputs + outputs)
    return roomy and transforms + at_frequencies + weights <= WORTH * direct


@lru_cache(maxsize=64)
def _make_fourier(
    size: tuple[int, ...], kernel: tuple[int, ...], padding: tuple[int, ...], dtype: torch.dtype
) -> FourierProducts:
    wide = [s + 2 * p for s, p in zip(size, padding, strict=True)]
    out = [s - k + 1 for s, k in zip(wide, kernel, strict=True)]
    # of two frequencies that are each other's conjugates the first is enough, counted twice
    pairs = [(u, v) for u in range(wide[0]) for v in range(wide[1])]
    first = [(u, v) for u, v in pairs if (u, v) <= (-u % wide[0], -v % wide[1])]
    u, v = (torch.tensor(part, device="cpu")[:, None] for part in zip(*first, strict=True))
    own = (2 * u % wide[0] == 0) & (2 * v % wide[1] == 0)
    times = torch.where(own, 1.0, 2.0).double() / math.prod(wide)
    waves, back = [], []
    for (high, broad), (top, left) in ((size, padding), (out, (0, 0)), (kernel, (0, 0))):
        rows, columns = torch.arange(high, device="cpu"), torch.arange(broad, device="cpu")
        a, b = torch.meshgrid(top + rows, left + columns, indexing="ij")
        down, across = ((k * e.reshape(1, -1) % n).double() / n for k, e, n in ((u, a, wide[0]), (v, b, wide[1])))
        angle = 2 * torch.pi * (down + across)
        wave = torch.stack((torch.cos(angle), -torch.sin(angle)))  # (2, F, entries)
        waves.append(wave.flatten(0, 1).to(dtype))
        back.append((times * wave).mT.to(dtype).contiguous())
    return FourierProducts(
        sizes=((size[0], size[1]), (out[0], out[1]), (kernel[0], kernel[1])),
        waves=(waves[0], waves[1], waves[2]),
        back=(back[0], back[1], back[2]),
    )
