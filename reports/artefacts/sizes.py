"""Sizes of networks and costs of methods, counted once and kept in sizes.json: listing artefacts opens no torch.

`reports.reproduction.write_sizes()` counts all that the artefacts need again, and writes the file; anything else is
counted when it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from reports.artefacts.scales import CLASSES
from reports.artefacts.stand_ins import Content

FILE = Path(__file__).parent / "sizes.json"
SHAPES = {  # channels and side of images, others 3 x 32; words and length of texts
    "digits": (1, 8),
    "fashion_mnist": (1, 28),
    "mnist": (1, 28),
    "synthetic": (1, 8),
    "pathmnist": (3, 28),
    "tissuemnist": (1, 28),
    "tiny_imagenet": (3, 64),
    "landmarks": (3, 224),
    "cityscapes": (3, 512),
    "idda": (3, 512),
    "brain": (1, 64),
    "dbpedia14": (30_000, 128),
    "speeches": (5000, 64),
}

Pair = tuple[float, float]


def size_network(content: Content) -> Pair:
    """Return the operations of a forward pass of one example through the network of a recipe, and its parameters.

    content: nested settings of the recipe.
    """
    key = _describe_network(content)
    return _read()["networks"].get(key) or _count_network(key)


def size_method(content: Content) -> Pair:
    """Return how many gradients a local step of a recipe's method takes, and how many vectors each client keeps.

    content: nested settings of the recipe.
    """
    name = str(content.get("algorithm", {}).get("name", "fedavg"))
    return _read()["methods"].get(name) or _count_method(name)


@cache
def _read() -> dict[str, dict[str, Pair]]:
    """Read what was counted: tables of networks and methods."""
    content: Mapping[str, Mapping[str, list[float]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return {table: {key: (pair[0], pair[1]) for key, pair in some.items()} for table, some in content.items()}


def _describe_network(content: Content) -> str:
    """Write what the size of a network depends on: its settings, and the classes and images of the data."""
    data = content.get("data", {})
    name = str(data.get("name", "digits"))
    classes = data.get("classes") or CLASSES.get(name, 10)
    model = {"name": "digits_cnn", **content.get("model", {})}
    return json.dumps([model, classes, *SHAPES.get(name, (3, 32))], sort_keys=True)


@cache
def _count_network(key: str) -> Pair:
    """Build a network and count; key: what `_describe_network` writes."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from training.models import networks

    given, classes, first, last = json.loads(key)
    name = given.pop("name")
    if "vocabulary" in networks.list_facts(networks.MODELS[name]):
        facts = {"vocabulary": first, "length": last}
        shape: tuple[int, ...] = (2, last)
        dtype = torch.int64
    else:
        facts = {"channels": first, "size": last, "image_height": last, "image_width": last}
        shape, dtype = (2, first, last, last), torch.float32
    model = networks.build(name, classes=classes, seed=0, **facts, **given)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval().to("meta")(torch.zeros(shape, dtype=dtype, device="meta"))  # counts without computing
    return counter.get_total_flops() / 2, sum(one.numel() for one in model.parameters())


def _count_method(name: str) -> Pair:
    from training.methods import catalog

    method = catalog.find_method(name)
    return method.gradients_per_step, len(method.client_vectors)


def count_sizes(contents: Iterable[Content]) -> dict[str, dict[str, Pair]]:
    """Count what the file holds for some recipes.

    contents: their nested settings.
    """
    some = list(contents)
    networks = sorted({_describe_network(one) for one in some})
    methods = sorted({str(one.get("algorithm", {}).get("name", "fedavg")) for one in some})
    return {
        "networks": {key: _count_network(key) for key in networks},
        "methods": {name: _count_method(name) for name in methods},
    }
