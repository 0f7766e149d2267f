"""The three scales of an experiment: `digits` in minutes, `small` on a laptop overnight, `full` as published.

A scale turns published settings into those of a run that fits. It changes data, model, sizes and lengths, never the
method or its radii; `describe_changes` says what was changed, for captions. Imports no torch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

from landscape.errors import choose
from reports.artefact import Settings
from reports.artefacts.stand_ins import MOST_CLIENTS, Content, find_stand_in, replace_data, replace_people
from reports.names import name_data
from training.storage import toml

CLASSES = {"cifar100": 100, "tiny_imagenet": 200, "landmarks": 2028}  # of data sets with other than ten
WATCHED = {  # settings whose changes captions tell
    "data.name": "data",
    "partition.name": "partition",
    "model.name": "model",
    "partition.clients": "clients",
    "rounds.participants": "participants",
    "rounds.count": "rounds",
    "local.epochs": "local epochs",
    "local.lr": "learning rate",
}
OWN_RATES = ("cityscapes", "idda", "landmarks")  # whose published rates are not the usual one of their papers
DIGITS_LR = 0.1  # the embedded digits learn well with it, without momentum
LAPTOP_ROUNDS = 150  # a table of eleven methods in six settings takes a night
LONGEST = 20_000  # rounds of published runs; those of ablations that go on for ten times as long are doubled here
SMALL_LR = 0.05  # the least rate of plain SGD that gets anywhere in a few hundred rounds
# twenty classes in five superclasses, hard enough that methods differ
TWENTY = {"name": "synthetic", "classes": 20, "examples": 2000, "separation": 5.0}
# other draws of synthetic images for other data sets, so that their columns are no copies
DRAWN: dict[str, Content] = {
    "cifar100": TWENTY,
    "tiny_imagenet": {**TWENTY, "seed": 1},
    "landmarks": {**TWENTY, "seed": 2},
    "tissuemnist": {**TWENTY, "classes": 8},
}
LAPTOP_DATA = {"tiny_imagenet": "cifar10", "tissuemnist": "mnist"}  # others: Fashion-MNIST
WIDE = {"name": "mlp", "hidden": [64, 32]}  # for them: their pixels have no places, which convolutions would look for
DEEP = {"name": "mlp", "hidden": [32, 32, 32, 32, 32]}  # six layers: FedFSA chooses five of ResNet-18's
LARGE = {"name": "mlp", "hidden": [48, 32]}  # for other large networks: deeper ones hardly learn in so few rounds
# on a laptop, by the first letters of a published network: other ones stay others
LAPTOP_MODELS: dict[str | tuple[str, ...], Content] = {
    ("resnet", "wrn", "mobilenet"): {"name": "lenet64"},
    "vgg": {"name": "fedavg_net"},
    "vit": {"name": "vit_small", "patch": 4, "width": 32, "depth": 2, "heads": 2, "hidden": 64},
    "sl_vit": {"name": "sl_vit", "width": 32, "depth": 2, "heads": 2, "head_width": 16, "hidden": 64},
}


@dataclass(frozen=True, eq=False)
class Scale:
    """A size of experiments.

    about: in one line. seeds: how many of the published ones are run; None: all.
    change: turns the nested published settings, with the paper's usual rate, into those of a run.
    """

    name: str
    about: str
    seeds: int | None
    change: Callable[[Content, float], Content]


def find_scale(name: str) -> Scale:
    """Return the scale of a name; ValueError with the nearest where there is none."""
    return SCALES[choose("scale", name, SCALES)]


def scale_settings(settings: Settings, scale: Scale, usual_lr: float) -> Content:
    """Turn published settings into the nested settings of a run.

    settings: by dotted keys. usual_lr: the paper's own rate, to which a swept rate keeps its ratio.
    """
    content: Content = {}
    for key, value in settings.items():
        toml.set_key(content, key, copy.deepcopy(value) if isinstance(value, (dict, list)) else value)
    return scale.change(content, usual_lr)


def _shrink_to_digits(content: Content, usual_lr: float) -> Content:
    """Take embedded data, a small network, fewer clients and rounds."""
    found, (rate, usual) = find_stand_in(content), _find_rates(content, usual_lr)
    if found is None:
        _replace_images(content)
    else:
        replace_data(content, "digits", found)
        if content["partition"]["name"] not in ("natural", "iid"):
            _take_fewer_clients(content)
    rounds, local = content.setdefault("rounds", {}), content.setdefault("local", {})
    local["batch_size"] = min(local.get("batch_size", 64), 16 if found is None else found.batch)
    local["epochs"] = _shrink_epochs(local)
    lr = DIGITS_LR if found is None else found.lr
    wanted = lr * (1 - local.get("momentum", 0.0)) * rate / usual  # another order would change digests in the last bit
    _shorten(content, max(round(8 * math.log10(rounds.get("count", 10))), 10), wanted)
    return content


def _find_rates(content: Content, usual_lr: float) -> tuple[float, float]:
    """Find the published rate of a run and the usual one of its paper, which differ where a figure sweeps it."""
    if content.get("data", {}).get("name") in OWN_RATES:
        return 1.0, 1.0
    return float(content.get("local", {}).get("lr", usual_lr)), usual_lr


def _replace_images(content: Content) -> None:
    """Replace images with one label by the digits, or where there are many classes by synthetic ones."""
    data, partition = content.setdefault("data", {}), content.setdefault("partition", {})
    classes = CLASSES.get(str(data.get("name")), 10)
    pooled = {"pooled": data["pooled"]} if "pooled" in data else {}
    drawn = DRAWN.get(str(data.get("name")))
    content["data"] = {**(drawn or {"name": "digits"}), **pooled}
    content["model"] = _choose_digits_model(content.get("model", {}), dict(WIDE) if drawn else {"name": "digits_cnn"})
    _take_fewer_clients(content)
    replace_people(content, MOST_CLIENTS)
    if "classes_per_client" in partition and classes > 10:
        partition["classes_per_client"] = max(round(partition["classes_per_client"] * 20 / classes), 1)
    if partition.get("name") == "dirichlet_by_class":
        partition["min_size"] = 2
    if partition.get("name") == "pachinko":
        partition["coarse"] = [fine // 4 for fine in range(20)]
    augment = content.get("augment", {})
    if augment:  # a quarter of the side of 32 pixels; mirrored digits are other digits, moved mixtures mere noise
        content["augment"] = {
            "padding": 0 if drawn else augment.get("padding", 0) // 4,
            "cutout": augment.get("cutout", 0) // 4,
            "mixup": augment.get("mixup", 0.0),
        }


def _take_fewer_clients(content: Content) -> None:
    partition, rounds = content["partition"], content.setdefault("rounds", {})
    if partition.get("clients", 1) > 1:
        partition["clients"] = max(partition["clients"] // 5, 10)
        rounds["participants"] = min(
            round(math.sqrt(5 * rounds.get("participants", 5))), partition["clients"]
        )  # 5, 10, 20 -> 5, 7, 10


def _choose_digits_model(model: Content, usual: Content) -> Content:
    """Choose a network for 8x8 images that stands in for a published one.

    usual: what stands in for small convolutional networks.
    """
    name = str(model.get("name"))
    if name == "resnet18_bn":
        return dict(DEEP)
    if name.startswith(("resnet", "wrn", "mobilenet")):
        return dict(LARGE)
    if name.startswith("vgg"):
        return {"name": "mlp", "hidden": [64, 64]}
    if name == "sl_vit":
        return {"name": "sl_vit", "width": 32, "depth": 2, "heads": 2, "head_width": 16, "hidden": 64}
    if name.startswith("vit"):
        return {"name": "vit_small", "patch": 2, "width": 32, "depth": 2, "heads": 2, "hidden": 64}
    return usual


def _shrink_to_laptop(content: Content, usual_lr: float) -> Content:
    data, rounds, local = (content.setdefault(table, {}) for table in ("data", "rounds", "local"))
    found, (rate, usual) = find_stand_in(content), _find_rates(content, usual_lr)
    swept = rate / usual
    if found is not None:
        replace_data(content, "small", found)
        if content["partition"]["name"] not in ("natural", "iid"):
            _take_fewer_clients(content)
        local["batch_size"] = min(local.get("batch_size", 64), found.batch)
    elif data.get("name") not in ("cifar10", "fashion_mnist"):
        classes = CLASSES.get(str(data.get("name")), 10)
        name = LAPTOP_DATA.get(str(data.get("name")), "fashion_mnist")
        content["data"] = {"name": name, **({"pooled": data["pooled"]} if "pooled" in data else {})}
        partition = content.get("partition", {})
        if "classes_per_client" in partition and classes > 10:
            partition["classes_per_client"] = max(round(partition["classes_per_client"] * 10 / classes), 1)
        if partition.get("name") == "pachinko":
            partition |= {"name": "dirichlet_total", "alpha": 0.5}
            partition.pop("beta", None)
        replace_people(content, partition.get("clients", 1))
    name = str(content.get("model", {}).get("name"))
    stand_in = next((small for kind, small in LAPTOP_MODELS.items() if name.startswith(kind)), content.get("model", {}))
    content["model"] = dict(stand_in)
    local["epochs"] = _shrink_epochs(local)
    lr = usual_lr * swept
    wanted = lr if local.get("momentum", 0.0) else max(SMALL_LR / usual_lr, 1.0) * lr
    if found is not None:
        wanted = found.lr * (1 - local.get("momentum", 0.0)) * swept
    count = rounds.get("count", 10)
    most = LAPTOP_ROUNDS * (1 + math.log10(max(count / LONGEST, 1)))
    _shorten(content, min(count, round(most)), wanted)
    return content


def _shrink_epochs(local: Content) -> int:
    """Fewer local epochs, other ones for other published ones: 1, 2, 5, 10, 20 -> 1, 2, 3, 4, 5."""
    return math.ceil(math.log2(local.get("epochs", 1) + 1))


def _shorten(content: Content, count: int, lr: float) -> None:
    """Shorten a run to `count` rounds at the rate `lr`, and everything that is counted in rounds with it."""
    rounds, local = content["rounds"], content["local"]
    share = count / rounds.get("count", count)
    old_lr = local.get("lr", lr)
    local["lr"], rounds["count"] = lr, count
    if "lr_decay" in local:
        local["lr_decay"] = local["lr_decay"] ** (1 / share)
    algorithm = content.get("algorithm", {})
    if algorithm.get("warmup"):
        algorithm["warmup"] = max(round(algorithm["warmup"] * share), 1)
    swa = content.get("swa")
    if swa:
        swa["cycle"] = 1 if swa.get("cycle", 10) == 1 else max(round(swa.get("cycle", 10) * share), 2)
        swa["lr_end"] = swa.get("lr_end", 1e-4) * lr / old_lr
    evaluation, checkpoints = content.setdefault("evaluation", {}), content.setdefault("checkpoints", {})
    evaluation["every"] = max(round(evaluation.get("every", 1) * share), 1)
    evaluation["last"] = min(max(round(evaluation.get("last", 10) * share), 3), count)
    checkpoints["every"] = min(max(round(checkpoints.get("every", count / 4 / share) * share), 1), count)


SCALES: dict[str, Scale] = {
    scale.name: scale
    for scale in (
        Scale(
            "digits",
            "digits, speeches and a brain that ship with the package, and synthetic images; takes minutes",
            2,
            _shrink_to_digits,
        ),
        Scale(
            "small",
            "Fashion-MNIST, CIFAR-10, speeches and a brain that ship with the package; 150 rounds, takes hours",
            1,
            _shrink_to_laptop,
        ),
        Scale("full", "as published", None, lambda content, usual_lr: content),
    )
}


def describe_changes(settings: Settings, content: Content) -> list[tuple[str, str]]:
    """Say what a scale changed in published settings: ("data", "CIFAR-10 → digits"), ("rounds", "10000 → 32").

    content: the nested settings of the run.
    """
    published: Content = {}
    for key, value in settings.items():
        toml.set_key(published, key, copy.deepcopy(value))
    old, new = dict(toml.flatten(published)), dict(toml.flatten(content))
    return [
        (word, f"{_format(old[key])} → {_format(new[key])}")
        for key, word in WATCHED.items()
        if key in old and key in new and old[key] != new[key]
    ]


def _format(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else name_data(str(value))
