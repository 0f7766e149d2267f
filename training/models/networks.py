"""Models by name: layer-exact networks of the papers, or a user's own 'module:function'.

The initial weights are a function of the seed alone: the global random state is neither read nor moved.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from landscape import rng
from landscape.errors import whole
from training.models.cnn import digits_cnn, fedavg_net, femnist_cnn, fsa_cnn, lenet64, mlp, vgg11
from training.models.resnets import mobilenetv2_gn, resnet18_bn, resnet18_gn, resnet18_gn_cifar, wrn28_4
from training.models.segmentation import bisenet_v2
from training.models.sl_vit import sl_vit
from training.models.text import char_lstm, text_cnn
from training.models.unet import unet
from training.models.vit import vit_small
from training.plugins import ExtensionPoint, accept_function, call, takes_anything

FACTS = {  # what a model may ask of the data by name -> what it is
    "classes": "the number of classes: data with labels",
    "channels": "the channels of images: a data set of images",
    "size": "the side of square images: a data set of square images",
    "image_height": "the height of images: a data set of images",
    "image_width": "the width of images: a data set of images",
    "vocabulary": "a vocabulary: a data set of token sequences",
    "length": "the length of token sequences: a data set of token sequences",
}
MODELS: dict[str, Callable[..., nn.Module]] = {
    "bisenet_v2": bisenet_v2,
    "char_lstm": char_lstm,
    "digits_cnn": digits_cnn,
    "fedavg_net": fedavg_net,
    "femnist_cnn": femnist_cnn,
    "fsa_cnn": fsa_cnn,
    "lenet64": lenet64,
    "mlp": mlp,
    "mobilenetv2_gn": mobilenetv2_gn,
    "resnet18_bn": resnet18_bn,
    "resnet18_gn": resnet18_gn,
    "resnet18_gn_cifar": resnet18_gn_cifar,
    "sl_vit": sl_vit,
    "text_cnn": text_cnn,
    "unet": unet,
    "vgg11": vgg11,
    "vit_small": vit_small,
    "wrn28_4": wrn28_4,
}


def build(name: str, *, seed: int, **given: Any) -> nn.Module:
    """Build a model whose initial weights are a function of the seed.

    name: one of MODELS, or 'module:function', which is called with those facts that it takes and the settings.
    seed: of the initial weights.
    given: facts about the data, as far as they are known, by the names in FACTS, and settings of the model's function.

    >>> model = build("lenet64", classes=10, channels=3, size=32, seed=0)
    >>> sum(parameter.numel() for parameter in model.parameters())
    797962
    """
    facts = {key: whole(key, given[key]) for key in FACTS if key in given}
    settings = {key: value for key, value in given.items() if key not in FACTS}
    function = NETWORKS.find(name)
    with torch.random.fork_rng(devices=[]):
        # only the CPU generator: torch.manual_seed would also reset every GPU's
        torch.default_generator.manual_seed(rng.key(seed, "model"))
        model = call("model", name, function, settings, required=choose_facts(name, function, facts))
    if not isinstance(model, nn.Module):
        raise ValueError(f"model '{name}' must return a torch.nn.Module, got {type(model).__name__}")
    return model


def accept_model(name: str, found: object) -> Callable[..., nn.Module]:
    """Return a user's own function, or class, that makes a model; name: its 'module:name', for messages."""
    return cast(Callable[..., nn.Module], accept_function("model", name, found))


NETWORKS = ExtensionPoint("model", MODELS, accept_model)


def list_facts(function: Callable[..., object]) -> tuple[str, ...]:
    """List the facts of the data that a model's function takes by name.

    >>> list_facts(lambda classes, channels, size, width=3: None)
    ('classes', 'channels', 'size')
    """
    taken = inspect.signature(function).parameters
    return tuple(fact for fact in FACTS if fact in taken)


def choose_facts(name: str, function: Callable[..., object], known: Mapping[str, int]) -> dict[str, int]:
    """Choose the facts that a model's function is called with; ValueError if it needs one that the data lack.

    name: of the model, for messages.
    known: facts of the data. A function that takes any keyword argument gets all of them.
    """
    if takes_anything(function):
        return dict(known)
    wanted = list_facts(function)
    lacking = [fact for fact in wanted if fact not in known]
    if lacking:
        there = ", ".join(f"{fact} {known[fact]}" for fact in FACTS if fact in known)
        raise ValueError(f"model '{name}' needs {FACTS[lacking[0]]}; the data have {there}")
    return {fact: known[fact] for fact in wanted}


def classifier(model: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d]:
    """Find the last linear or convolutional layer in order of definition: its dotted path, and the layer.

    A network with auxiliary heads defines them before the main one, so that this is the last layer of the main head.
    """
    layers = [(path, layer) for path, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no torch.nn.Linear or torch.nn.Conv2d layer, so it has no head")
    return layers[-1]


def head(model: nn.Module) -> tuple[str, ...]:
    """Names of the classifier's parameters: what FedBABU freezes and FedSoL may perturb alone."""
    path, layer = classifier(model)
    return tuple(f"{path}.{name}" if path else name for name, _ in layer.named_parameters())


def features(model: nn.Module, inputs: Tensor) -> Tensor:
    """Compute the penultimate features, which enter the classifier, with gradients and in the model's current mode."""
    path, layer = classifier(model)
    caught: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, arguments: caught.append(arguments[0]))
    try:
        model(inputs)
    finally:
        handle.remove()
    if not caught:
        raise ValueError(f"the forward pass never called layer '{path}', the last layer of the model")
    return caught[-1]
