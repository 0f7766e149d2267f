"""Models by name: layer-exact networks of the papers, or a user's own 'module:function'.

The initial weights are a function of the seed alone: the global random state is neither read nor moved.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from landscape import rng
from landscape.errors import choose, whole
from training.models.cnn import digits_cnn, fedavg_net, fsa_cnn, lenet64, mlp, vgg11
from training.models.resnets import mobilenetv2_gn, resnet18_bn, resnet18_gn, resnet18_gn_cifar, wrn28_4
from training.models.vit import vit_small
from training.plugins import call, import_function

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


def build(name: str, *, classes: int, channels: int, size: int, seed: int, **settings: object) -> nn.Module:
    """Build a model whose initial weights are a function of the seed.

    name: one of MODELS, or 'module:function', which is called with classes, channels, size and the settings.
    classes: outputs of the model.
    channels, size: of the images, which are square.
    settings: further arguments of the model's function.

    >>> model = build("lenet64", classes=10, channels=3, size=32, seed=0)
    >>> sum(parameter.numel() for parameter in model.parameters())
    797962
    """
    function = import_function("model", name) if ":" in name else MODELS[choose("model", name, MODELS)]
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
    """Find the last linear layer in order of definition: its dotted path, and the layer."""
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
    caught: list[Tensor] = []
    handle = linear.register_forward_pre_hook(lambda _, arguments: caught.append(arguments[0]))
    try:
        model(inputs)
    finally:
        handle.remove()
    if not caught:
        raise ValueError(f"the forward pass never called layer '{path}', the last torch.nn.Linear of the model")
    return caught[-1]
