"""A small vision transformer for small images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.errors import whole


class Attention(nn.Module):
    """Multi-head self-attention through torch's fused kernel."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        joint = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        queries, keys, values = joint.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each after a LayerNorm and added to its input."""

    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """Patches -> tokens with learned positions and a class token -> blocks -> class token -> classes."""

    def __init__(
        self, classes: int, channels: int, size: int, patch: int, width: int, depth: int, heads: int, hidden: int
    ):
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position_embedding = nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.position_embedding, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.position_embedding
        return self.fc(self.norm(self.blocks(tokens))[:, 0])  # type: ignore[no-any-return]


def vit_small(
    classes: int,
    channels: int = 3,
    size: int = 32,
    *,
    patch: int = 4,
    width: int = 256,
    depth: int = 6,
    heads: int = 4,
    hidden: int = 512,
) -> nn.Module:
    """A ViT with the sizes of ViT-Lite-6/4 (Hassani et al. 2021), pre-norm, without dropout.

    patch: side of the square patches; it must divide the image size.
    width: of a token.
    depth: number of blocks.
    heads: of each attention; it must divide the width.
    hidden: width of the perceptron in each block.
    """
    if size % whole("patch", patch):
        divisors = [str(one) for one in range(2, size + 1) if size % one == 0]
        raise ValueError(f"patch must divide the image size {size}, got {patch}: write one of {', '.join(divisors)}")
    if width % whole("heads", heads):
        raise ValueError(f"heads must divide width={width}, got {heads}")
    return VisionTransformer(classes, channels, size, patch, width, whole("depth", depth), heads, hidden)
