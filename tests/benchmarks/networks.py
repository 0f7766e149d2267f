"""The networks that eigenvalues are measured on, in plain torch: the peers' environment has nothing of our package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 10


def lenet64() -> nn.Module:
    """The CNN of the federated-learning papers: 797,962 parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1600, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, CLASSES),
    )


class Residual(nn.Module):
    """Two convolutions with BatchNorm, added to the input; where the shape changes, to a 1 x 1 convolution of it."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet20() -> nn.Module:
    """ResNet-20 for 32 x 32 images (He et al. 2016), BatchNorm with its running statistics."""
    widths = (16, 16, 16, 32, 32, 32, 64, 64, 64)
    blocks = [
        Residual(before, width, 1 if before == width else 2)
        for before, width in zip((16, *widths[:-1]), widths, strict=True)
    ]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def gelu_mlp() -> nn.Module:
    """A perceptron 3072-512-512-10: 1,841,162 parameters, and little work for each."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3072, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, CLASSES)
    )


class Block(nn.Module):
    """Self-attention, then a perceptron, each after a LayerNorm and added to its input."""

    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        joint = self.joint(self.norms[0](x)).view(batch, tokens, 3, self.heads, width // self.heads)
        queries, keys, values = joint.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        deeper: Tensor = self.perceptron(self.norms[1](x))
        return x + deeper


class VisionTransformer(nn.Module):
    """Patches of 4 x 4 with learned positions and a class token, through blocks, to the classes."""

    def __init__(self, width: int, depth: int, heads: int, hidden: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 65, width))
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions
        scores: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return scores


def small_vit() -> nn.Module:
    """A vision transformer of 4 blocks with 65 tokens of width 128."""
    return VisionTransformer(width=128, depth=4, heads=4, hidden=256)


@dataclass(frozen=True)
class Network:
    """How a network is made and trained."""

    make: Callable[[], nn.Module]
    rate: float  # of SGD with momentum 0.9
    epochs: int


NETWORKS = {
    # With 4 epochs the six largest eigenvalues, 41 29 22 20 17 15, are those of the same network trained on 10,000
    # images of CIFAR-10 until the loss is 0.6 (43 29 27 22 19 15): solvers need as many steps as on real data.
    "LeNet64": Network(lenet64, rate=0.02, epochs=4),
    "ResNet-20-BN": Network(resnet20, rate=0.05, epochs=4),
    "GELU MLP": Network(gelu_mlp, rate=0.02, epochs=4),
    "ViT": Network(small_vit, rate=0.02, epochs=6),
}
