"""The settings of the FedSoL paper as literal tables: data sets, methods, partitions. Its tables 3 and 4 show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reports.artefact import Entry, Settings

CIFAR_AUGMENTATION: Settings = {"padding": 4, "flip": True, "cutout": 16}  # the published code's


@dataclass(frozen=True)
class DataSet:
    """One data set of Table 3.

    name: in recipes and published.csv. title: as printed. clients, rounds, ratio: of sampling.
    augment: what is done to training images. settings: of the data set, as the published code has them.
    """

    name: str
    title: str
    clients: int
    rounds: int
    ratio: float
    augment: Settings = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)


MNIST = DataSet("mnist", "MNIST", 100, 200, 0.1, CIFAR_AUGMENTATION, {"rgb": True})
CIFAR10 = DataSet("cifar10", "CIFAR-10", 100, 300, 0.1, CIFAR_AUGMENTATION)
SVHN = DataSet("svhn", "SVHN", 100, 200, 0.1, {"padding": 4, "flip": True})
CINIC10 = DataSet("cinic10", "CINIC-10", 200, 300, 0.05, {"padding": 4, "border": "reflect", "flip": True})
# training takes the validation part as well
PATHMNIST = DataSet("pathmnist", "PathMNIST", 200, 200, 0.05, {"flip": True}, {"validation": True})
TISSUEMNIST = DataSet("tissuemnist", "TissueMNIST", 200, 200, 0.05, {"flip": True}, {"validation": True, "rgb": True})
DATA_SETS = (MNIST, CIFAR10, SVHN, CINIC10, PATHMNIST, TISSUEMNIST)

SEEDS = (0, 1, 2)
SETTINGS: Settings = {
    "model.name": "fedavg_net",
    "local.lr": 0.01,
    "local.lr_decay": 0.99,
    "local.batch_size": 50,
    "local.epochs": 5,
    "local.momentum": 0.9,
    "local.weight_decay": 1e-5,
    "rounds.aggregation": "uniform",  # Algorithm 1
    "checkpoints.every": 20,  # divides the 200 rounds of figure 8
    "checkpoints.keep_locals": "none",
}
SEEDS_NOTE = "The paper says three runs and prints no seeds: 0, 1 and 2 stand in"
WEIGHTS_NOTE = "Models are averaged with equal weights, as Algorithm 1 has it; equation 1 weighs clients by size"
LAST_NOTE = "Whether the last or the best round is reported is not stated: the mean of the last ten stands in"
USUAL_NOTE = f"{SEEDS_NOTE}. {LAST_NOTE}. {WEIGHTS_NOTE}"

# Table 4; FedDyn's strength is not printed
DYN = 0.1
METHODS: Mapping[str, Settings] = {
    "FedAvg": {"name": "fedavg"},
    "FedProx": {"name": "fedprox", "mu": 1.0},
    "FedNova": {"name": "fednova"},
    "Scaffold": {"name": "scaffold"},
    "FedNTD": {"name": "fedntd", "beta": 1.0, "tau": 1.0},
    "FedSAM": {"name": "fedsam", "rho": 0.1},
    "FedASAM": {"name": "fedasam", "rho": 1.0, "eta": 0.0, "scope": "all"},
    "FedSoL": {"name": "fedsol", "rho": 2.0},
    "FedDyn": {"name": "feddyn", "alpha": DYN},
    "MOON": {"name": "moon", "mu": 0.1, "tau": 0.5},
    "PerFedAvg": {"name": "perfedavg", "adapt": 0.01},
    "FedBabu": {"name": "fedbabu"},
}
EIGHT = ("FedAvg", "FedProx", "FedNova", "Scaffold", "FedNTD", "FedSAM", "FedASAM", "FedSoL")  # rows of Table 1
OURS = {"FedSoL": "FedSoL (Ours)"}
# method -> what was searched, where anything was (Table 4)
SEARCHED: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "FedAvg": {},
    "FedProx": {"mu": (0.1, 0.5, 1.0, 2.0)},
    "Scaffold": {},
    "FedNova": {},
    "FedNTD": {"beta": (0.5, 1.0), "tau": (1.0, 3.0)},
    "FedSAM": {"rho": (0.1, 0.5, 1.0, 2.0)},
    "FedASAM": {"rho": (0.1, 0.5, 1.0, 2.0)},
    "FedDyn": {},
    "MOON": {"mu": (0.1, 0.5), "tau": (0.5, 1.0)},
    "FedSoL": {"rho": (0.1, 0.5, 1.0, 2.0)},
}
SHARDING, LDA = "Sharding", "LDA"


def use_data(data: DataSet) -> dict[str, object]:
    """Return the settings that a data set brings."""
    return {
        "data": {"name": data.name, **data.settings},
        "augment": dict(data.augment),
        "rounds.count": data.rounds,
        "rounds.participants": round(data.ratio * data.clients),
    }


def use_partition(data: DataSet, strategy: str, level: float) -> dict[str, object]:
    """Return the settings of a split: so many shards a client, or a Dirichlet distribution with unequal sizes."""
    split: Settings = {"name": "dirichlet_by_class", "clients": data.clients, "alpha": level}
    if strategy == SHARDING:
        split = {"name": "shards", "clients": data.clients, "shards_per_client": int(level)}
    return {**use_data(data), "partition": dict(split)}


def use_lda(data: DataSet) -> dict[str, object]:
    """Return the settings of the usual split, LDA with alpha = 0.1."""
    return use_partition(data, LDA, 0.1)


def use_method(method: str, **changes: object) -> dict[str, object]:
    """Return the settings of a method.

    changes: of single settings of it.
    """
    return {"algorithm": {**METHODS[method], **changes}}


def make_series(method: str, label: str = "", group: str = "", **changes: object) -> Entry:
    """Make a series of a figure, or a row.

    label: by default the method's name. changes: of single settings of the method.
    """
    return Entry(label or method, use_method(method, **changes), group)


def name_lda(data: DataSet) -> str:
    """Return what published.csv calls the usual split of a data set."""
    return f"{data.name} lda alpha=0.1"
