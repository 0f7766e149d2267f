"""SL-ViT, the vision transformer for small data sets of Lee et al. 2021, as FedSoL uses it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.errors import whole

SHIFTS = ((1, -1, 0, 0), (-1, 1, 0, 0), (0, 0, 1, -1), (0, 0, -1, 1))  # padding left, right, top, bottom: one pixel
COPIES = 1 + len(SHIFTS)


class ShiftedPatches(nn.Module):
    """Shifted patch tokenisation: the image beside four copies moved by one pixel, in patches, each as one token.

    The published code moves by one pixel; Lee et al. 2021 by half a patch, along the diagonals.
    """

    def __init__(self, channels: int, patch: int, width: int):
        super().__init__()
        self.patch = patch
        inputs = COPIES * channels * patch * patch
        self.norm = nn.LayerNorm(inputs)
        self.fc = nn.Linear(inputs, width)

    def forward(self, images: Tensor) -> Tensor:
        """Tokens (B, patches, width) of images (B, channels, size, size); the pixels of a patch come row by row."""
        beside = torch.cat([images, *(functional.pad(images, shift) for shift in SHIFTS)], dim=1)
        batch, channels, size, _ = beside.shape
        count = size // self.patch
        cut = beside.reshape(batch, channels, count, self.patch, count, self.patch).permute(0, 2, 4, 3, 5, 1)
        tokens: Tensor = self.fc(self.norm(cut.reshape(batch, count * count, -1)))
        return tokens


class LocalAttention(nn.Module):
    """Locality self-attention: a learned temperature, and no token attends to itself."""

    def __init__(self, width: int, heads: int, head_width: int):
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.log_temperature = nn.Parameter(torch.tensor(-0.5 * math.log(head_width)))
        self.qkv = nn.Linear(width, 3 * heads * head_width, bias=False)
        self.out = nn.Linear(heads * head_width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens (B, T, width)."""
        batch, tokens, _ = x.shape
        joint = self.qkv(x).view(batch, tokens, 3, self.heads, self.head_width)
        queries, keys, values = joint.permute(2, 0, 3, 1, 4).unbind(0)
        scores = queries @ keys.transpose(-2, -1) * self.log_temperature.exp()
        itself = torch.eye(tokens, dtype=torch.bool, device=x.device)
        weights = scores.masked_fill(itself, -torch.finfo(scores.dtype).max).softmax(dim=-1)
        mixed: Tensor = self.out((weights @ values).transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each after a LayerNorm and added to its input."""

    def __init__(self, width: int, heads: int, head_width: int, hidden: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = LocalAttention(width, heads, head_width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens (B, T, width)."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class SlVit(nn.Module):
    """Shifted patches and a class token with learned positions -> blocks -> class token -> classes."""

    def __init__(
        self,
        classes: int,
        channels: int,
        size: int,
        *,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        head_width: int,
        hidden: int,
    ):
        super().__init__()
        self.patches = ShiftedPatches(channels, patch, width)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position_embedding = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, head_width, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, channels, size, size)."""
        tokens = torch.cat([self.token.expand(len(images), -1, -1), self.patches(images)], dim=1)
        logits: Tensor = self.fc(self.norm(self.blocks(tokens + self.position_embedding)[:, 0]))
        return logits


def sl_vit(
    classes: int,
    channels: int = 3,
    size: int = 32,
    *,
    patch: int | None = None,
    width: int = 192,
    depth: int = 9,
    heads: int = 12,
    head_width: int = 64,
    hidden: int = 192,
) -> nn.Module:
    """SL-ViT (Lee et al. 2021) as FedSoL's code has it: shifted patches, attention to other tokens only, no dropout.

    6,176,275 parameters for ten classes of 32x32 images. Weights begin as torch's, token and positions as N(0, 1).
    patch: side of the square patches, a divisor of the image size; by default a quarter of it, at most 16.
    width: of a token.
    depth: number of blocks.
    heads: of each attention.
    head_width: of each head, whatever the width of a token.
    hidden: width of the perceptron in each block.
    """
    side = min(size // 4, 16) if patch is None else whole("patch", patch)
    if side < 1 or size % side:
        divisors = [str(one) for one in range(2, size + 1) if size % one == 0]
        raise ValueError(f"patch must divide the image size {size}, got {side}: write one of {', '.join(divisors)}")
    for name, value in {"width": width, "depth": depth, "heads": heads, "head_width": head_width}.items():
        whole(name, value)
    return SlVit(
        classes,
        channels,
        size,
        patch=side,
        width=width,
        depth=depth,
        heads=heads,
        head_width=head_width,
        hidden=whole("hidden", hidden),
    )
