"""The runs of the FedVSSAM paper.

Our copy has lost its in-line mathematics: rates, radii, epochs, mixing coefficients, levels of heterogeneity, targets
and the number of runs. FL-Simulator's settings stand in, as in the recipes fedvssam_*.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reports.artefact import Entry, Panel, Settings
from reports.quantities.catalog import ACCURACY, make_rounds_to

SEEDS = (0, 1, 2)  # their number is lost: three stand in
LOST = (
    "Rates, radii, epochs, mixing coefficients, levels of heterogeneity and the number of runs are lost in our copy: "
    "FL-Simulator's settings and three runs stand in."
)
BASE: dict[str, object] = {
    "model.name": "resnet18_gn",
    "augment": {"padding": 4, "flip": True},
    "local.lr": 0.1,
    "local.lr_decay": 0.998,
    "local.batch_size": 128,
    "local.epochs": 5,
    "local.weight_decay": 1e-3,
    "local.clip": 10.0,
    "rounds.count": 800,
    "rounds.participants": 10,
    "rounds.aggregation": "uniform",
    "evaluation.every": 1,
    "checkpoints.every": 400,
    "checkpoints.keep_locals": "none",
}
# batch sizes are printed; the convolutions of TextCNN are lost
DATA: dict[str, Settings] = {
    "cifar10": {"data.name": "cifar10", "local.batch_size": 128},
    "cifar100": {"data.name": "cifar100", "model.name": "wrn28_4", "local.batch_size": 20},
    "dbpedia14": {
        # 10,000 + 1,000 texts of each class; which ones is not printed: they are drawn
        "data": {"name": "dbpedia14", "train_per_class": 10_000, "test_per_class": 1_000},
        "model.name": "text_cnn",
        "augment": {},
        "local.batch_size": 128,
        "rounds.count": 400,
    },
}
PRINTED = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "dbpedia14": "DBpedia-14"}
MODERATE, SEVERE = "moderate", "severe"
BETAS = {MODERATE: 0.6, SEVERE: 0.1}  # mass of each class; lost
CLASSES = {  # of each client in pathological partitions; lost
    "cifar10": {MODERATE: 6, SEVERE: 3},
    "cifar100": {MODERATE: 20, SEVERE: 10},
    "dbpedia14": {MODERATE: 8, SEVERE: 4},
}
TARGETS = {"cifar10": 75.0, "cifar100": 45.0, "dbpedia14": 90.0}  # per cent, of rounds to a target
MIXING = {MODERATE: 0.2, SEVERE: 0.1}  # FedVSSAM's alpha for both levels; lost
METHODS: dict[str, Mapping[str, object]] = {
    "FedAvg": {"name": "fedavg"},
    "FedProx": {"name": "fedprox", "mu": 0.1},
    "FedAdam": {"name": "fedadam", "eta_g": 0.1, "tau": 0.01},
    "SCAFFOLD": {"name": "scaffold"},
    "FedACG": {"name": "fedacg", "lam": 0.85, "mu": 0.002},
    "FedCM": {"name": "fedcm", "a": 0.1},
    "FedDyn": {"name": "feddyn", "alpha": 0.1},
    "FedSAM": {"name": "fedsam", "rho": 0.1},
    "MoFedSAM": {"name": "mofedsam", "rho": 0.1, "a": 0.1},
    "FedGAMMA": {"name": "fedgamma", "rho": 0.01},
    "FedSMOO": {"name": "fedsmoo", "rho": 0.1, "beta": 10.0},
    "FedLESAM": {"name": "fedlesam", "rho": 0.01},
    "FedVSSAM": {"name": "fedvssam", "rho": 0.1, "gamma": 0.5},
}


def make_method(label: str, group: str = "", clients: int = 100, **settings: object) -> Entry:
    """Make a row or series of a method.

    label: a key of METHODS. group: of the row. clients: their number.
    settings: of the method, on top of those in METHODS.
    """
    algorithm = {f"algorithm.{name}": value for name, value in {**METHODS[label], **settings}.items()}
    return Entry(label, {**algorithm, "partition.clients": clients}, group)


def describe_partition(data: str, name: str, level: str) -> Settings:
    """Return the settings of a data set and of a partition but for its number of clients.

    data: a key of DATA. name: dirichlet or pathological. level: moderate or severe.
    """
    if name == "dirichlet":
        partition = {"partition.name": "dirichlet_per_class", "partition.beta": BETAS[level]}
    else:
        partition = {"partition.name": "pathological", "partition.classes_per_client": CLASSES[data][level]}
    return {**DATA[data], **partition}


def mix(row: Entry, column: Entry | Panel) -> Settings:
    """Return FedVSSAM's alpha, which depends on the level of heterogeneity; what the row sets itself stays.

    row: a method. column: of a partition.
    """
    if row.settings["algorithm.name"] != "fedvssam" or "algorithm.a" in row.settings:
        return {}
    return {"algorithm.a": MIXING[find_level(column.settings)]}


def find_level(settings: Settings) -> str:
    """Find the level of heterogeneity of settings."""
    given = settings.get("partition.beta", settings.get("partition.classes_per_client"))
    mild = {BETAS[MODERATE], *(some[MODERATE] for some in CLASSES.values())}
    return MODERATE if given in mild else SEVERE


def make_columns(data: str, name: str, level: str, key: str) -> tuple[Entry, Entry]:
    """Make the columns of the final accuracy and of rounds to the target.

    data, name, level: as in `describe_partition`. key: what published.csv calls the setting.
    """
    settings = describe_partition(data, name, level)
    group = " ".join((PRINTED[data], name.capitalize(), level if "N=" not in key else "")).strip()
    survives = data == "dbpedia14" or (data, name, level) == ("cifar10", "dirichlet", MODERATE)
    return (
        Entry("Acc.", settings, group, f"{key} accuracy", ACCURACY),
        Entry("Rd.", settings, group, f"{key} rounds", replace(make_rounds_to(TARGETS[data]), comparable=survives)),
    )


def make_panel(
    kind: str, data: str, name: str, level: str, series: tuple[Entry, ...], title: str = "", **options: object
) -> Panel:
    """Make a panel of a data set and partition.

    kind: of the panel. data, name, level: as in `describe_partition`. series: methods.
    title: by default the setting. options: of the kind.
    """
    settings = describe_partition(data, name, level)
    where = Entry(title or f"{PRINTED[data]}, {name.capitalize()}, {level}", settings)
    return Panel(kind, series, where.label, settings, options, lambda one: mix(one, where))
