"""BiSeNetV2 (Yu et al. 2021) with four auxiliary heads, layer by layer as FedDrive trains it.

Names of layers are FedDrive's as far as SiloBN's choice of statistics depends on them: the norm of a convolution with
norm and ReLU is called bn, norms inside a Sequential have numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.errors import positive, whole

SHORTEST = 32  # the deepest stage sees the image at a 32nd of its size
EXPANSION = 6  # channels inside a gather-and-expansion layer, for each channel outside


class ConvNormRelu(nn.Module):
    """A convolution without bias, BatchNorm and ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, outputs, H / stride, W / stride)."""
        return functional.relu(self.bn(self.conv(x)))


def _conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class Stem(nn.Module):
    """Reduce images to a quarter of their size by convolutions and by pooling, and combine both."""

    def __init__(self, channels: int, width: int):
        super().__init__()
        self.conv = ConvNormRelu(channels, width, stride=2)
        self.left = nn.Sequential(ConvNormRelu(width, width // 2, 1), ConvNormRelu(width // 2, width, stride=2))
        self.right = nn.MaxPool2d(3, stride=2, padding=1)
        self.fuse = ConvNormRelu(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, width, H / 4, W / 4)."""
        x = self.conv(x)
        return self.fuse(torch.cat([self.left(x), self.right(x)], dim=1))  # type: ignore[no-any-return]


class GatherExpand(nn.Module):
    """A gather-and-expansion layer: 3x3, depthwise to six times the channels, 1x1 back, added to the input."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        wide = EXPANSION * inputs
        self.conv1 = ConvNormRelu(inputs, inputs)
        depthwise = _conv_norm(inputs, wide, 3, stride, groups=inputs)
        if stride > 1:
            depthwise += _conv_norm(wide, wide, 3, groups=wide)
        self.depthwise = nn.Sequential(*depthwise, nn.ReLU())
        self.conv2 = nn.Sequential(*_conv_norm(wide, outputs, 1))
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(
                *_conv_norm(inputs, inputs, 3, stride, groups=inputs), *_conv_norm(inputs, outputs, 1)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, outputs, H / stride, W / stride)."""
        return functional.relu(self.conv2(self.depthwise(self.conv1(x))) + self.shortcut(x))


class ContextEmbedding(nn.Module):
    """The mean over the image, added to every place; in training it needs at least two images, for its BatchNorm."""

    def __init__(self, width: int):
        super().__init__()
        self.bn = nn.BatchNorm2d(width)
        self.conv_gap = ConvNormRelu(width, width, 1)
        self.conv_last = ConvNormRelu(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, width, H, W)."""
        if self.training and len(x) == 1:
            raise ValueError(
                "bisenet_v2 cannot be trained on a batch of one image, whose mean over the image has no variance: "
                "choose a local.batch_size that leaves no single image over"
            )
        mean = self.conv_gap(self.bn(x.mean(dim=(2, 3), keepdim=True)))
        return self.conv_last(mean + x)  # type: ignore[no-any-return]


class GuidedAggregation(nn.Module):
    """Combine details and semantics, each gated by the other, at an eighth of the image's size."""

    def __init__(self, width: int):
        super().__init__()
        self.left1 = nn.Sequential(*_conv_norm(width, width, 3, groups=width), nn.Conv2d(width, width, 1, bias=False))
        self.left2 = nn.Sequential(*_conv_norm(width, width, 3, stride=2), nn.AvgPool2d(3, stride=2, padding=1))
        self.right1 = nn.Sequential(*_conv_norm(width, width, 3))
        self.right2 = nn.Sequential(*_conv_norm(width, width, 3, groups=width), nn.Conv2d(width, width, 1, bias=False))
        self.conv = nn.Sequential(*_conv_norm(width, width, 3), nn.ReLU())

    def forward(self, detail: Tensor, semantic: Tensor) -> Tensor:
        """Compute (B, width, H / 8, W / 8) from details of that size and meaning at a quarter of it."""
        fine = self.left1(detail) * _enlarge(self.right1(semantic)).sigmoid()
        coarse = _enlarge(self.left2(detail) * self.right2(semantic).sigmoid())
        return self.conv(fine + coarse)  # type: ignore[no-any-return]


def _enlarge(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=4, mode="bilinear", align_corners=True)


def _resize(x: Tensor, factor: float) -> Tensor:
    return functional.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)


def _make_head(inputs: int, hidden: int, classes: int, factor: int, dropout: float) -> nn.Module:
    """Logits at `factor` times the size of what comes in."""
    final = nn.Conv2d(hidden, classes * factor * factor, 1)
    return nn.Sequential(ConvNormRelu(inputs, hidden), nn.Dropout(dropout), final, nn.PixelShuffle(factor))


class BiSeNetV2(nn.Module):
    """A branch for details, a branch for meaning, and heads: the main one, and one for each stage of the second branch.

    The main head is defined last, so that its last convolution is the classifier.
    """

    def __init__(self, classes: int, channels: int, *, auxiliary: bool, dropout: float, divisor: int):
        super().__init__()
        first, small, middle, large = (width // divisor for width in (16, 32, 64, 128))
        wide = (64 // divisor, 128 // divisor)
        self.detail = nn.Sequential(
            ConvNormRelu(channels, wide[0], stride=2),
            ConvNormRelu(wide[0], wide[0]),
            ConvNormRelu(wide[0], wide[0], stride=2),
            ConvNormRelu(wide[0], wide[0]),
            ConvNormRelu(wide[0], wide[0]),
            ConvNormRelu(wide[0], wide[1], stride=2),
            ConvNormRelu(wide[1], wide[1]),
            ConvNormRelu(wide[1], wide[1]),
        )
        self.stem = Stem(channels, first)
        self.stage3 = nn.Sequential(GatherExpand(first, small, 2), GatherExpand(small, small, 1))
        self.stage4 = nn.Sequential(GatherExpand(small, middle, 2), GatherExpand(middle, middle, 1))
        again = (GatherExpand(large, large, 1) for _ in range(3))
        self.stage5 = nn.Sequential(GatherExpand(middle, large, 2), *again)
        self.context = ContextEmbedding(large)
        self.aggregation = GuidedAggregation(large)
        widths = {"2": (first, 4), "3": (small, 8), "4": (middle, 16), "5": (large, 32)} if auxiliary else {}
        self.auxiliary = nn.ModuleDict(
            {
                stage: _make_head(width, 128 // divisor, classes, factor, dropout)
                for stage, (width, factor) in widths.items()
            }
        )
        self.head = _make_head(large, 1024 // divisor, classes, 8, dropout)
        self.test_scale = 1.0
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, GatherExpand):
                nn.init.zeros_(module.conv2[1].weight)  # type: ignore[arg-type]  # begin as the shortcut alone

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Logits (B, classes, H, W); in training mode those of the main head, then those of the auxiliary heads.

        images: (B, channels, H, W), H and W multiples of 32.
        """
        if not self.training and self.test_scale != 1:
            return _resize(self._compute(_resize(images, self.test_scale))[0], 1 / self.test_scale)
        logits, *others = self._compute(images)
        return (logits, *others) if others else logits

    def _compute(self, images: Tensor) -> tuple[Tensor, ...]:
        second = self.stem(images)
        third = self.stage3(second)
        fourth = self.stage4(third)
        fifth = self.stage5(fourth)
        logits: Tensor = self.head(self.aggregation(self.detail(images), self.context(fifth)))
        if not self.training:
            return (logits,)
        stages = {"2": second, "3": third, "4": fourth, "5": fifth}
        return (logits, *(head(stages[stage]) for stage, head in self.auxiliary.items()))


def bisenet_v2(
    classes: int,
    channels: int = 3,
    image_height: int = 512,
    image_width: int = 1024,
    *,
    auxiliary: bool = True,
    dropout: float = 0.1,
    divisor: int = 1,
    test_scale: float = 1.0,
) -> nn.Module:
    """BiSeNetV2 (Yu et al. 2021) as FedDrive trains it, from scratch; 8,196,416 parameters for 19 classes.

    auxiliary: four more heads, which only training uses; 4,585,552 parameters for 19 classes without them.
    dropout: in each head.
    divisor: of all numbers of channels, 1, 2, 4 or 8, for smaller networks than the published one.
    test_scale: factor of the size at which images are tested, 0.5 for IDDA; logits are brought back to the size of
        the image. Training has crops of that scale.
    """
    for name, side in (("height", image_height), ("width", image_width)):
        if side % SHORTEST:
            raise ValueError(f"{name} of images for bisenet_v2 must be a multiple of {SHORTEST}, got {side}")
    if whole("divisor", divisor) not in (1, 2, 4, 8):
        raise ValueError(f"divisor must be 1, 2, 4 or 8, got {divisor}")
    model = BiSeNetV2(classes, channels, auxiliary=auxiliary, dropout=dropout, divisor=divisor)
    model.test_scale = positive("test_scale", test_scale)
    return model
