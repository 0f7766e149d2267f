"""The tables of the FedGloSS paper that need no runs: sizes, settings, and values that were tried."""

from __future__ import annotations

from reports.artefact import Artefact, Facts
from reports.papers.fedgloss.runs import GUESSED, SETUPS, TUNED, name_setup

TABLE11 = Artefact(
    "table11",
    "Sizes of the data sets",
    Facts(
        ("Data set", "Train clients", "Train samples", "Test samples"),
        (
            ("CIFAR10", "100", "50,000", "10,000"),
            ("CIFAR100", "100", "50,000", "10,000"),
            ("Landmarks-User-160k", "1,262", "164,172", "19,526"),
        ),
    ),
)


def _list_setups() -> tuple[tuple[str, ...], ...]:
    """List the rows of Table 12 from the settings of the runs."""
    rows = []
    for setup, settings in SETUPS.items():
        if setup == "resnet18 cifar10":
            continue  # the paper has no row for it
        model, data = name_setup(setup)
        count, participants = settings["rounds.count"], settings["rounds.participants"]
        local = (
            settings.get("local.epochs", 1),
            settings.get("local.lr", 0.01),
            settings["local.weight_decay"],
            settings.get("local.momentum", 0),
            64,
        )
        rows.append(
            (data, model, *(f"{value:g}" for value in (count, participants, *local) if isinstance(value, (int, float))))
        )
    return tuple(rows)


TABLE12 = Artefact(
    "table12",
    "Settings of all methods",
    Facts(("Data set", "Model", "Rounds", "Clients per round", "E", "lr", "wd", "Momentum", "B"), _list_setups()),
    note="ResNet18 on CIFAR10 has no row; our runs take those of CIFAR100.",
)

GRIDS = {  # printed name, hyper-parameter -> method, its setting, and the values tried in each of the setups
    ("FedSAM", "rho"): (
        "fedsam",
        "rho",
        "0.05 0.1 0.15 0.2",
        "0.01 0.02 0.05",
        "0.005 0.01 0.02 0.05",
        "0.01 0.02 0.05",
        "0.05",
    ),
    ("FedProx", "mu"): ("fedprox", "mu", *(("0.001 0.01 0.1",) * 5)),
    ("FedDyn", "alpha"): (
        "feddyn",
        "alpha",
        "0.001 0.01 0.1",
        "0.001 0.01 0.1",
        "0.001 0.01 0.1",
        "0.01",
        "0.001 0.01",
    ),
    ("FedDyn", "rho (with SAM)"): ("feddyn+sam", "rho", "0.15", "0.01", "0.01 0.02", "0.01", "0.05"),
    ("FedSpeed", "rho"): ("fedspeed", "rho", "0.05 0.1 0.15 0.2", "0.01", "0.005 0.01 0.02 0.05", "0.01", "0.05"),
    ("FedSpeed", "alpha"): ("fedspeed", "a", "0.9 0.95 0.99", "0.9 0.95", "0.9 0.95 0.99", "0.9 0.95", "0.95"),
    ("FedSpeed", "lambda"): ("fedspeed", "lam", *(("10 100 1000",) * 4), "100 1000"),
    ("FedGAMMA", "rho"): ("fedgamma", "rho", "0.15", "0.01", "0.01", "0.01", "0.05"),
    ("FedSMOO", "rho"): (
        "fedsmoo",
        "rho",
        "0.05 0.1 0.15 0.2",
        "0.01",
        "0.005 0.01 0.05 0.1 0.2",
        "0.01",
        "0.05 0.1 0.2 0.3",
    ),
    ("FedSMOO", "beta"): ("fedsmoo", "beta", "5 10 100", "1 2 5 10", "10 100", "5 10 100", "10 50 100 1000"),
    ("FedGloSS", "rho_s"): (
        "fedgloss",
        "rho_s",
        "0.01 0.1 0.15",
        "0.01 0.05 0.1 0.5",
        "0.01 0.05 0.1 0.2",
        "0.01 0.05 0.1 0.5",
        "0.005 0.01 0.02",
    ),
    ("FedGloSS", "rho"): ("fedgloss", "rho", "0.05 0.1 0.15 0.2", "0.01", "0.05 0.1 0.2", "0.01", "0.05 0.1 0.2 0.3"),
    ("FedGloSS", "beta"): ("fedgloss", "beta", "5 10 100", "1 2 5 10", "10 100", "5 10 100", "10 50 100"),
    ("FedGloSS", "T_s"): ("fedgloss", "warmup", "1000 2000 4000", "0", "1000 2000 5000 10000 15000", "0", "0"),
}


def mark_chosen(values: str, chosen: float) -> str:
    """Put the chosen one of some values into brackets.

    >>> mark_chosen("0.1 0.15", 0.15)
    '0.1, [0.15]'
    """
    return ", ".join(f"[{value}]" if float(value) == chosen else value for value in values.split())


TABLE13 = Artefact(
    "table13",
    "Values that were tried, the chosen one in brackets",
    Facts(
        ("Method", "Hyper-parameter", *(" ".join(reversed(name_setup(setup))) for setup in SETUPS)),
        tuple(
            (*heads, *(mark_chosen(*pair) for pair in zip(grids, TUNED[method][setting], strict=True)))
            for heads, (method, setting, *grids) in GRIDS.items()
        ),
    ),
    note=GUESSED,
)

FACTS = (TABLE11, TABLE12, TABLE13)
