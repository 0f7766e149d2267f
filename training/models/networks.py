"""Models by name: layer-exact networks of the papers, or a user's own 'module:function'.

The initial weights are a function of the seed alone: the global random state is neither read nor moved.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from landscape import rng
from landscape.errors import choose, whole
from training.models.resnets import mobilenetv2_gn, resnet18_bn, resnet18_gn, resnet18_gn_cifar, wrn28_4
from training.models.vit import vit_small
from training.plugins import call, imported


def mlp(classes: int, channels: int = 3, size: int = 32, *, hidden: Sequence[int] = (200, 200)) -> nn.Module:
    """Linear layers with ReLU between; the default is the 2NN of McMahan et al. 2017, () is softmax regression."""
    return _perceptron(channels * size * size, hidden, classes, before=OrderedDict(flatten=nn.Flatten()))


def digits_cnn(classes: int, channels: int = 1, size: int = 8) -> nn.Module:
    """Two small convolutions and one linear layer for 8x8 digits: it trains in seconds."""
    return _cnn(classes, channels, size, widths=(16, 32), kernel=3, padding=1, hidden=())


def lenet64(classes: int, channels: int = 3, size: int = 32) -> nn.Module:
    """The CNN of FedSAM and FedGloSS: two 5x5 convolutions of 64 filters, then 384-192-classes."""
    return _cnn(classes, channels, size, widths=(64, 64), kernel=5, padding=0, hidden=(384, 192))


def fedavg_net(classes: int, channels: int = 3, size: int = 32) -> nn.Module:
    """The CNN of McMahan et al. 2017 as FedSoL and FedNTD use it: padded 5x5 convolutions 32-64, then 512-classes."""
    return _cnn(classes, channels, size, widths=(32, 64), kernel=5, padding=2, hidden=(512,))


FSA_VARIANTS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {  # filters of the convolutions, hidden layers
    "cifar": ((64, 64), (1024, 1024)),
    "fmnist": ((4, 12), (1024, 1024)),
    "tiny": ((32, 32), (512, 1024)),
}


def fsa_cnn(classes: int, channels: int = 3, size: int = 32, *, variant: str | None = None) -> nn.Module:
    """The CNN of FedFSA and FedCR: by default fmnist for one channel, tiny for 64x64 images, else cifar."""
    chosen = variant or ("fmnist" if channels == 1 else "tiny" if size == 64 else "cifar")
    widths, hidden = FSA_VARIANTS[choose("variant", chosen, FSA_VARIANTS)]
    return _cnn(classes, channels, size, widths=widths, kernel=5, padding=0, hidden=hidden)


def vgg11(classes: int, channels: int = 3, size: int = 32) -> nn.Module:
    """VGG-11 for small images as FedSoL uses it: no norms, 512-512-classes on top.

    Images smaller than 32 skip the last pooling, whose input is one pixel already.
    """
    whole("size of images for vgg11", size, least=16)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    inputs, side = channels, size
    for stage, widths in enumerate(((64,), (128,), (256, 256), (512, 512), (512, 512)), start=1):
        for place, width in enumerate(widths, start=1):
            conv = nn.Conv2d(inputs, width, 3, padding=1)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            layers[f"conv{stage}_{place}"] = conv
            if place == len(widths) and side > 1:
                layers[f"pool{stage}"] = nn.MaxPool2d(2)
                side //= 2
            layers[f"relu{stage}_{place}"] = nn.ReLU()
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


MODELS: dict[str, Callable[..., nn.Module]] = {
    "digits_cnn": digits_cnn,
    "fedavg_net": fedavg_net,
    "fsa_cnn": fsa_cnn,
    "lenet64": lenet64,
    "mlp": mlp,
    "mobilenetv2_gn": mobilenetv2_gn,
    "resnet18_bn": resnet18_bn,
    "resnet18_gn": resnet18_gn,
    "resnet18_gn_cifar": resnet18_gn_cifar,
    "vgg11": vgg11,
    "vit_small": vit_small,
    "wrn28_4": wrn28_4,
}


def build(name: str, *, classes: int, channels: int, size: int, seed: int, **settings: Any) -> nn.Module:
    """A model with initial weights that are a function of the seed: build("lenet64", classes=10, ..., seed=0).

    name: one of MODELS, or 'module:function' that is called with classes, channels, size and the settings.
    """
    function = imported("model", name) if ":" in name else MODELS[choose("model", name, MODELS)]
    required = {
        "classes": whole("classes", classes),
        "channels": whole("channels", channels),
        "size": whole("size", size),
    }
    with torch.random.fork_rng(devices=[]):
        # only the CPU generator: torch.manual_seed would also reset every GPU's
        torch.default_generator.manual_seed(rng.key(seed, "model"))
        model = call("model", name, function, settings, required=required)
    if not isinstance(model, nn.Module):
        raise ValueError(f"model '{name}' must return a torch.nn.Module, got {type(model).__name__}")
    return model


def classifier(model: nn.Module) -> tuple[str, nn.Linear]:
    """The last linear layer in order of definition, and its dotted path."""
    linear = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError(f"{type(model).__name__} has no torch.nn.Linear layer, so it has no head to speak of")
    return linear[-1]


def head(model: nn.Module) -> tuple[str, ...]:
    """Names of the classifier's parameters: what FedBABU freezes and FedSoL may perturb alone."""
    path, linear = classifier(model)
    return tuple(f"{path}.{name}" if path else name for name, _ in linear.named_parameters())


def features(model: nn.Module, inputs: Tensor) -> Tensor:
    """Penultimate features: what enters the classifier. Gradients flow, and the model's mode is the caller's."""
    path, linear = classifier(model)
    seen: list[Tensor] = []
    handle = linear.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        model(inputs)
    finally:
        handle.remove()
    if not seen:
        raise ValueError(f"the forward pass never called layer '{path}', the last torch.nn.Linear of the model")
    return seen[-1]
