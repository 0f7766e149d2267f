"""Residual networks of the seed papers: ResNet-18, WRN-28-4 and MobileNetV2, with the norms that FL uses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from landscape.errors import choose

Norm = Callable[[int], nn.Module]
NORMS = ("batch", "group")


def choose_norm(norm: str, groups: int = 2, running_statistics: bool = True) -> Norm:
    """Choose the normalisation layer: a function of the number of channels.

    norm: batch or group.
    groups: of GroupNorm.
    running_statistics: whether BatchNorm keeps them.
    """
    if choose("norm", norm, NORMS) == "group":
        return partial(_group_norm, groups)
    return partial(nn.BatchNorm2d, track_running_stats=running_statistics)


def _group_norm(groups: int, channels: int) -> nn.GroupNorm:
    if groups < 1 or channels % groups:
        raise ValueError(f"groups must divide the {channels} channels of every layer, got {groups}: write 2, 4 or 8")
    return nn.GroupNorm(groups, channels)


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


def _he(conv: nn.Conv2d) -> nn.Conv2d:
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _resnet18(classes: int, channels: int, stem: str, norm: Norm) -> nn.Module:
    from training.models.torchvision_shim import models  # here, for importing torchvision takes seconds

    resnet = models.resnet
    model: nn.Module = resnet.ResNet(resnet.BasicBlock, [2, 2, 2, 2], num_classes=classes, norm_layer=norm)
    if choose("stem", stem, ("imagenet", "cifar")) == "cifar":
        model.conv1 = _he(_conv3x3(channels, 64))
        model.maxpool = nn.Identity()
    elif channels != 3:
        model.conv1 = _he(nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False))
    return model


def resnet18_gn(classes: int, channels: int = 3, size: int = 32, *, groups: int = 2) -> nn.Module:
    """torchvision's ResNet-18, every norm a GroupNorm, 7x7 stem and max-pooling kept even for 32x32 images."""
    return _resnet18(classes, channels, "imagenet", choose_norm("group", groups))


def resnet18_gn_cifar(classes: int, channels: int = 3, size: int = 32, *, groups: int = 2) -> nn.Module:
    """ResNet-18 with GroupNorm and a 3x3 stem without pooling."""
    return _resnet18(classes, channels, "cifar", choose_norm("group", groups))


def resnet18_bn(
    classes: int, channels: int = 3, size: int = 32, *, stem: str = "cifar", running_statistics: bool = True
) -> nn.Module:
    """ResNet-18 with BatchNorm and a 3x3 stem (FedFSA); running_statistics=False is FedSoL's variant."""
    return _resnet18(classes, channels, stem, choose_norm("batch", running_statistics=running_statistics))


class PreActivation(nn.Module):
    """norm-ReLU-conv twice, plus the input; where the shape changes the shortcut starts after the first ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm):
        super().__init__()
        self.norm1 = norm(inputs)
        self.conv1 = _conv3x3(inputs, outputs, stride)
        self.norm2 = norm(outputs)
        self.conv2 = _conv3x3(outputs, outputs)
        self.shortcut: nn.Module | None = None
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = functional.relu(self.norm1(x))
        residual = self.conv2(functional.relu(self.norm2(self.conv1(active))))
        straight = x if self.shortcut is None else self.shortcut(active)
        return straight + residual  # type: ignore[no-any-return]


def wrn28_4(classes: int, channels: int = 3, size: int = 32, *, norm: str = "group", groups: int = 2) -> nn.Module:
    """WRN-28-4 (Zagoruyko and Komodakis 2016): three stages of four pre-activation blocks, 64/128/256 wide.

    A 3x3 stem of 16 filters, then 64x32x32 -> 128x16x16 -> 256x8x8 -> mean of 256 -> classes for 32x32 images.
    FedVSSAM, which uses it, does not say which norm; GroupNorm averages over clients without further rules.
    """
    make = choose_norm(norm, groups)
    blocks: list[nn.Module] = []
    inputs = 16
    for width, stride in ((64, 1), (128, 2), (256, 2)):
        for block in range(4):
            blocks.append(PreActivation(inputs, width, stride if block == 0 else 1, make))
            inputs = width
    layers = OrderedDict(
        stem=_conv3x3(channels, 16),
        blocks=nn.Sequential(*blocks),
        norm=make(256),
        relu=nn.ReLU(),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc=nn.Linear(256, classes),
    )
    model = nn.Sequential(layers)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            _he(module)
    return model


def mobilenetv2_gn(
    classes: int, channels: int = 3, size: int = 32, *, groups: int = 8, dropout: float = 0.0
) -> nn.Module:
    """torchvision's MobileNetV2 of width 1 with GroupNorm (Hsu et al. 2020).

    Its dropout (0.2 in torchvision) is off by default: it would draw from the global generator, which is not keyed.
    """
    from training.models.torchvision_shim import models

    model: nn.Module = models.MobileNetV2(num_classes=classes, norm_layer=choose_norm("group", groups), dropout=dropout)
    if channels != 3:
        first = _he(nn.Conv2d(channels, 32, 3, stride=2, padding=1, bias=False))
        model.get_submodule("features.0").add_module("0", first)
    return model
