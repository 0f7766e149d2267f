"""The network of the golden run that has running statistics."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def batchnorm_cnn(classes: int, channels: int, size: int) -> nn.Module:
    """A convolution, BatchNorm, and a linear layer: 'tests.golden.networks:batchnorm_cnn' in a recipe."""
    side = size // 2
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(channels, 3, 3, padding=1),
        norm=nn.BatchNorm2d(3),
        relu=nn.ReLU(),
        pool=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        fc=nn.Linear(3 * side * side, classes),
    )
    return nn.Sequential(layers)
