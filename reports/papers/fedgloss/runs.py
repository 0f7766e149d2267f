"""The runs of the FedGloSS paper: its settings, the values it chose for every method, and its usual questions.

Bold type marks the chosen values of its Table 13, and our copy keeps bold type only as a blank before a comma. Where
there is no blank, the last value of the grid stands in; `GUESSED` lists these. One of them contradicts Figure 19a,
which finds small rho_s best for ResNet18 on CIFAR100: there 0.01 is taken, not the last value 0.5.
"""

from __future__ import annotations

import math
from dataclasses import replace

from reports.artefact import Entry, Panel, Question, Settings
from reports.quantities.catalog import ACCURACY, QUANTITIES, Quantity

SEEDS = (0, 42, 200299)  # of the published script; the paper says three
BASE: dict[str, object] = {
    "partition": {"name": "dirichlet_total", "clients": 100},
    "augment": {"padding": 4, "flip": True},
    "local.lr": 0.01,
    "local.batch_size": 64,
    "local.epochs": 1,
    "evaluation.every": 10,
    "evaluation.last": 100,  # accuracies are means of the last 100 rounds
    "checkpoints.keep_locals": "none",
}
CNN: Settings = {"model.name": "lenet64", "local.weight_decay": 4e-4, "rounds.participants": 5}
RESNET: Settings = {
    "model.name": "resnet18_gn",
    "local.weight_decay": 1e-5,
    "local.momentum": 0.7,
    "rounds.participants": 10,
    "rounds.count": 10000,
    "checkpoints.every": 2500,
}
# Table 12, in the order of the columns of Table 13. It has no row for ResNet18 on CIFAR10: that on CIFAR100 stands in
SETUPS: dict[str, Settings] = {
    "cnn cifar10": {**CNN, "data.name": "cifar10", "rounds.count": 10000, "checkpoints.every": 2500},
    "resnet18 cifar10": {**RESNET, "data.name": "cifar10"},
    "cnn cifar100": {**CNN, "data.name": "cifar100", "rounds.count": 20000, "checkpoints.every": 5000},
    "resnet18 cifar100": {**RESNET, "data.name": "cifar100"},
    "mobilenetv2 landmarks-user-160k": {
        "data.name": "landmarks",
        "partition": {"name": "natural", "clients": 1262},
        "model.name": "mobilenetv2_gn",
        "augment": {"flip": True, "area": [0.08, 1.0]},  # not printed: FedSAM's, by the same authors
        "local.lr": 0.1,
        "local.epochs": 5,
        "local.weight_decay": 4e-5,
        "rounds.count": 1300,
        "rounds.participants": 50,
        "checkpoints.every": 325,
    },
}
LANDMARKS = "mobilenetv2 landmarks-user-160k"
PLACES = {(one["model.name"], one["data.name"]): place for place, one in enumerate(SETUPS.values())}

# method -> hyper-parameter -> chosen value in each of the setups (Table 13)
RHO_S, RHO, BETA = (0.15, 0.01, 0.01, 0.01, 0.005), (0.15, 0.01, 0.2, 0.01, 0.3), (10.0, 1.0, 100.0, 100.0, 50.0)
T_S = (2000, 0, 15000, 0, 0)
TUNED: dict[str, dict[str, tuple[float, ...]]] = {
    "fedavg": {},
    "fedprox": {"mu": (0.1, 0.01, 0.1, 0.1, 0.1)},
    "feddyn": {"alpha": (0.01, 0.01, 0.01, 0.01, 0.001)},
    "scaffold": {},
    "fedgloss+none": {"rho_s": RHO_S, "beta": BETA},
    "fedsam": {"rho": (0.15, 0.01, 0.01, 0.01, 0.05)},
    "fedsam-previous": {"rho": (0.15, 0.01, 0.01, 0.01, 0.05)},
    "feddyn+sam": {"alpha": (0.01, 0.01, 0.01, 0.01, 0.001), "rho": (0.15, 0.01, 0.02, 0.01, 0.05)},
    "fedspeed": {
        "rho": (0.15, 0.01, 0.01, 0.01, 0.05),
        "a": (0.95, 0.95, 0.95, 0.95, 0.95),
        "lam": (100.0, 1000.0, 1000.0, 1000.0, 1000.0),
    },
    "fedgamma": {"rho": (0.15, 0.01, 0.01, 0.01, 0.05)},
    "fedsmoo": {"rho": (0.15, 0.01, 0.1, 0.01, 0.1), "beta": (10.0, 5.0, 100.0, 10.0, 50.0)},
    "fedgloss": {"rho_s": RHO_S, "rho": RHO, "beta": BETA, "warmup": T_S},
    "naivefedgloss": {"rho_s": RHO_S, "rho": RHO, "beta": BETA, "warmup": T_S},
}
GUESSED = (
    "The chosen values of Table 13 are bold, which our copy shows only in part. The last value of the grid stands in "
    "for mu of FedProx, rho of FedDyn with SAM on CIFAR100, lambda of FedSpeed, beta of FedSMOO on CIFAR100, and "
    "rho_s, rho, beta and T_s of FedGloSS where nothing is bold; for rho_s on ResNet18 and CIFAR100 0.01 does, because "
    "Figure 19 finds small values best."
)

ALPHAS = {  # total mass of the Dirichlet distribution: harder, milder, homogeneous
    "cifar10": (0.0, 0.05, 100.0),
    "cifar100": (0.0, 0.5, 1000.0),
}
PRINTED = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "landmarks": "Landmarks-User-160k"}

SGD, SAM = "SGD clients", "SAM clients"


def make_method(label: str, name: str, group: str = "", key: str = "", **settings: object) -> Entry:
    """Make a row or series of a method.

    label: as printed. name: of the method. group: of the row. key: what published.csv calls it.
    settings: of the method, where they are not those of `TUNED`.
    """
    algorithm = {"algorithm.name": name, **{f"algorithm.{one}": value for one, value in settings.items()}}
    return Entry(label, algorithm, group, key)


BLOCKS = (  # rows of Tables 3, 5, 8 and 10
    make_method("FedAvg", "fedavg", SGD, "FedAvg (SGD)"),
    make_method("FedProx", "fedprox", SGD, "FedProx (SGD)"),
    make_method("FedDyn", "feddyn", SGD, "FedDyn (SGD)"),
    make_method("SCAFFOLD", "scaffold", SGD, "SCAFFOLD (SGD)"),
    make_method("FedGloSS", "fedgloss+none", SGD, "FedGloSS (SGD)"),
    make_method("FedSAM", "fedsam", SAM, "FedSAM (SAM)"),
    make_method("FedDyn", "feddyn+sam", SAM, "FedDyn (SAM)"),
    make_method("FedSpeed", "fedspeed", SAM, "FedSpeed (SAM)"),
    make_method("FedGAMMA", "fedgamma", SAM, "FedGAMMA (SAM)"),
    make_method("FedSMOO", "fedsmoo", SAM, "FedSMOO (SAM)"),
    make_method("FedGloSS", "fedgloss", SAM, "FedGloSS (SAM)"),
)
ROW_OF = {row.key: row for row in BLOCKS}


def tune(row: Entry, column: Entry) -> Settings:
    """Return the chosen hyper-parameters of a method in a setup; what either entry sets itself stays.

    row, column: one has the method, the other the data set and the model; or one has all.
    """
    given = {**column.settings, **row.settings}
    place = PLACES[given["model.name"], given["data.name"]]
    chosen = TUNED[str(given["algorithm.name"])]
    found = {f"algorithm.{name}": values[place] for name, values in chosen.items()}
    return {key: value for key, value in found.items() if key not in given}


def make_column(
    setup: str, alpha: float, *, label: str = "", quantity: Quantity | None = None, suffix: str = ""
) -> Entry:
    """Make a column of a setup under a heading of its own.

    setup: a key of SETUPS. alpha: of the partition. label: by default the alpha, under the names of model and data.
    quantity: of its cells. suffix: what published.csv writes behind the setting.
    """
    model, data = name_setup(setup)
    level = "" if setup == LANDMARKS else f"α={alpha:g}"
    settings = dict(SETUPS[setup]) if setup == LANDMARKS else {**SETUPS[setup], "partition.alpha": alpha}
    group = " ".join((model, data, level)) if label and level else f"{model} {data}"
    key = setup if setup == LANDMARKS else f"{setup} alpha={alpha:g}"
    return Entry(label or level or "accuracy", settings, group, f"{key} {suffix}".strip(), quantity)


def name_setup(setup: str) -> tuple[str, str]:
    """Return the printed names of the model and the data of a setup."""
    model = {"cnn": "CNN", "resnet18": "ResNet18", "mobilenetv2": "MobileNetV2"}[setup.split()[0]]
    return model, PRINTED[str(SETUPS[setup]["data.name"])]


def make_panel(
    kind: str, setup: str, alpha: float, series: tuple[Entry, ...], title: str = "", **more: object
) -> Panel:
    """Make a panel of a setup, with the methods tuned for it.

    kind: of the panel. setup, alpha: as in `make_column`. series: methods. title: by default the setting.
    more: options of the kind.
    """
    model, data = name_setup(setup)
    where = Entry(title or f"{model}, {data}, α={alpha:g}", {**SETUPS[setup], "partition.alpha": alpha})
    return Panel(kind, series, where.label, where.settings, more, lambda one: tune(one, where))


ONE_DECIMAL = replace(ACCURACY, decimals=1)
LAMBDA_1 = QUANTITIES["lambda_1"]  # two decimals
NO_DUALS = math.inf  # beta without ADMM
CENTRALISED: Settings = {  # its settings are not printed: an epoch a round, the federated rates
    "partition": {"name": "iid", "clients": 1},
    "rounds.count": 300,
    "rounds.participants": 1,
    "evaluation.last": 10,
    "checkpoints.every": 75,
}
# ours, and the published 20 steps beside it
LAMBDA = Question(
    "curvature", "lambda_1", {"rounds": "last", "top": 1, "published": True}, {"limit": 400}, {"limit": 2000}
)
SURFACE = Question(
    "surface",
    "surface",
    {"axes": "random", "extent": 1.0, "steps": 21, "splits": ["train"]},
    {"steps": 9, "limit": 400},
    {"limit": 2000},
)
