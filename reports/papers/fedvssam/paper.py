"""The FedVSSAM paper."""

from __future__ import annotations

from dataclasses import replace

from reports.artefact import Artefact, Entry, Facts, Grid, Layout, NotReproduced, Panel, Paper, Question
from reports.papers.fedvssam.runs import (
    BASE,
    BETAS,
    CLASSES,
    DATA,
    LOST,
    METHODS,
    MIXING,
    MODERATE,
    PRINTED,
    SEEDS,
    SEVERE,
    TARGETS,
    describe_partition,
    make_columns,
    make_method,
    make_panel,
    mix,
)

LEVELS = (MODERATE, SEVERE)
SEVERE_CIFAR10 = ("cifar10", "dirichlet", SEVERE)


def _find_printed(row: Entry, column: Entry) -> tuple[str, str]:
    """Find a cell of Table 1 in published.csv, which has the number of clients in its columns."""
    setting, _, what = column.key.rpartition(" ")
    return row.label, f"{setting} {row.group} {what}"


TABLE1 = Artefact(
    "table1",
    "Final accuracy and rounds to a target accuracy, image classification",
    Grid(
        tuple(make_method(label, f"N={clients}", clients) for clients in (100, 200) for label in METHODS),
        tuple(
            column
            for data in ("cifar10", "cifar100")
            for name in ("dirichlet", "pathological")
            for level in LEVELS
            for column in make_columns(data, name, level, f"{data} {name} {level}")
        ),
        adjust=mix,
        printed=_find_printed,
        blocks=True,
        note="Rd. is the first round at or above 75 % (CIFAR-10) or 45 % (CIFAR-100).",
    ),
    note=f"{LOST} So are all accuracies, and all targets but 75 % for CIFAR-10, Dirichlet, moderate, N = 100: it "
    "stands in for the others on CIFAR-10, and 45 % for those on CIFAR-100, so that other rounds cannot be "
    "compared with the printed ones. The text claims the fewest rounds for FedVSSAM; by its own table FedACG needs "
    "fewer on CIFAR-100.",
)


def _list_settings() -> tuple[tuple[str, ...], ...]:
    """List the rows of Table 2 from the settings of the runs."""
    batches = [(PRINTED[data], "batch size", str(some["local.batch_size"]), "printed") for data, some in DATA.items()]
    common = [
        ("all", name, f"{BASE[key]}", "stand-in")
        for name, key in (
            ("local rate", "local.lr"),
            ("decay of the rate", "local.lr_decay"),
            ("local epochs", "local.epochs"),
            ("weight decay", "local.weight_decay"),
        )
    ]
    levels = [("all", f"Dirichlet, {level}", f"{beta:g}", "stand-in") for level, beta in BETAS.items()]
    levels += [
        (PRINTED[data], f"classes per client, {level}", str(count), "stand-in")
        for data, some in CLASSES.items()
        for level, count in some.items()
    ]
    methods = [
        (label, name, f"{value}", "stand-in")
        for label, some in METHODS.items()
        for name, value in some.items()
        if name != "name"
    ]
    mixing = [("FedVSSAM", f"a, {level}", f"{a:g}", "stand-in") for level, a in MIXING.items()]
    return (*batches, *common, *levels, *methods, *mixing)


TABLE2 = Artefact(
    "table2",
    "Settings",
    Facts(("Scope", "Parameter", "Setting", "Source"), _list_settings()),
    note=LOST,
)
TABLE3 = Artefact(
    "table3",
    "Text classification, DBpedia-14",
    Grid(
        tuple(make_method(label) for label in METHODS),
        tuple(
            column
            for name in ("dirichlet", "pathological")
            for column in make_columns("dbpedia14", name, SEVERE, f"dbpedia14 {name}")
        ),
        adjust=mix,
        note=f"Rd. is the first round at or above {TARGETS['dbpedia14']:g} %.",
    ),
    note=f"{LOST} So are all accuracies but one, the numbers of clients and participants (100 and 10 stand in) and the "
    "kernel sizes of TextCNN.",
)
TABLE4 = Artefact("table4", "Convergence bounds of methods", NotReproduced("theory: bounds and their residual terms"))
TABLE5 = Artefact(
    "table5", "Features of methods", NotReproduced("a comparison in words: which method has which feature")
)

_SEEN = {"own": "local loss: a client's own data", "train": "global loss: everyone's data"}
FIGURE1 = Artefact(
    "figure1",
    "Flatness incompatibility: loss of a local model and of the aggregated one over the same plane, FedSAM",
    Layout(
        tuple(
            make_panel("plane", *SEVERE_CIFAR10, (make_method("FedSAM"),), title, split=split, lowest=True)
            for split, title in _SEEN.items()
        )
    ),
    settings={"checkpoints.keep_locals": "last"},
    questions=(
        Question(
            "plane",
            "incompatible",
            {"models": "clients", "own": True, "splits": ["train"], "steps": 21, "margin": 1.0},
            {"steps": 15, "limit": 400},
            {"limit": 2000},
        ),
    ),
    seeds=(0,),
    note="Data set, round, directions and range are lost: CIFAR-10, Dirichlet, severe, the last round and the plane "
    f"through three participants' models, in which the global model is projected, stand in. {LOST}",
)


def _take_part(participants: int) -> Entry:
    """Make a series of FedVSSAM with a number of participants."""
    one = make_method("FedVSSAM")
    return replace(one, label=f"K={participants}", settings={**one.settings, "rounds.participants": participants})


FIGURE2 = Artefact(
    "figure2",
    "Accuracy over rounds of FedVSSAM with more and fewer participants",
    Layout((make_panel("curves", *SEVERE_CIFAR10, tuple(_take_part(one) for one in (5, 10, 20, 50))),), 1),
    note="The text cites this and the next figure under one number: their order is inferred. Data set, partition and "
    f"numbers of participants are lost: CIFAR-10, Dirichlet, severe, and 5, 10, 20, 50 of 100 stand in. {LOST}",
)
PARTS = {  # printed name -> which of equations 14, 15, 16 are on
    "FedVSSAM-base": (False, False, False),
    "LF": (True, False, False),
    "LU": (False, True, False),
    "GU": (False, False, True),
}
FIGURE3 = Artefact(
    "figure3",
    "The three operations of FedVSSAM one by one",
    Layout(
        (
            make_panel(
                "curves",
                *SEVERE_CIFAR10,
                (
                    *(
                        replace(make_method("FedVSSAM", lf=lf, lu=lu, gu=gu), label=label)
                        for label, (lf, lu, gu) in PARTS.items()
                    ),
                    make_method("FedVSSAM"),
                ),
            ),
        ),
        1,
    ),
    note="Data set and partition are lost: CIFAR-10, Dirichlet, severe stands in. The legend is lost: that the full "
    f"method is shown is a guess. {LOST}",
)
FIGURE4 = Artefact(
    "figure4",
    "Accuracy over rounds, image classification",
    Layout(
        tuple(
            make_panel("curves", data, "dirichlet", level, tuple(make_method(label) for label in METHODS))
            for data in ("cifar10", "cifar100")
            for level in LEVELS
        )
    ),
    note=f"Legend and number of clients are lost: all methods of Table 1 and 100 clients stand in. {LOST}",
)
FIGURE5 = Artefact(
    "figure5",
    "Accuracy over rounds, DBpedia-14",
    Layout(
        tuple(
            make_panel(
                *("curves", "dbpedia14", name, SEVERE, tuple(make_method(label) for label in METHODS)),
                f"{PRINTED['dbpedia14']}, {name.capitalize()}",
            )
            for name in ("dirichlet", "pathological")
        )
    ),
    note=LOST,
)
FIGURE6 = Artefact(
    "figure6",
    "Penultimate features of the global model after half of the rounds and after all",
    Layout(
        tuple(
            make_panel("features", *SEVERE_CIFAR10, (make_method(label),), label, at=share)
            for share in (0.5, 1.0)
            for label in ("FedAvg", "SCAFFOLD", "FedSAM", "FedSMOO", "FedVSSAM")
        ),
        5,
    ),
    settings={"checkpoints.every": 80},
    questions=(
        Question(
            "features",
            "features",
            {"rounds": "every 400", "models": ["server"], "split": "test", "count": 3000, "keep": False},
            {"rounds": "every 12", "count": 300},
            {"rounds": "every 75", "count": 1000},
        ),
    ),
    seeds=(0,),
    note=f"The level of heterogeneity is lost: severe stands in. {LOST}",
)
INCOMPATIBILITY = Question(
    "incompatibility",
    "incompatibility",
    {"rounds": "every 80", "clients": 50, "steps": 0, "batches": 0},
    {"rounds": "every 6", "clients": 10},
    {"rounds": "every 30", "limit": 200},
)


def draw_mechanism(name: str, title: str, metric: str) -> Artefact:
    """Declare a figure of FedVSSAM at two levels of heterogeneity, measured every 80 rounds.

    metric: a variable of the study `incompatibility`.
    """
    series = tuple(
        replace(
            one := make_method("FedVSSAM", a=MIXING[level]),
            label=level,
            settings={**describe_partition("cifar10", "dirichlet", level), **one.settings},
        )
        for level in LEVELS
    )
    panel = Panel("curves", series, "CIFAR-10, Dirichlet", options={"metric": metric, "study": "incompatibility"})
    return Artefact(
        name,
        title,
        Layout((panel,), 1),
        settings={"checkpoints.every": 80},
        questions=(INCOMPATIBILITY,),
        note="The text cites figures 7 and 8 under one number: their order is inferred. Numbers of clients and "
        f"participants are lost: 100 and 10 stand in. {LOST}",
    )


FIGURE7 = draw_mechanism("figure7", "Distance between FedVSSAM's direction and a reference gradient", "tracking_error")
FIGURE8 = draw_mechanism("figure8", "Spread of the local flatness proxy over clients, FedVSSAM", "rise_dispersion")

SWEEPS = {  # title -> dotted key and its values; all are lost
    "local mixing coefficient": ("algorithm.a", (0.05, 0.1, 0.2, 0.5, 1.0)),
    "global mixing coefficient": ("algorithm.gamma", (0.1, 0.3, 0.5, 0.7, 1.0)),
    "local epochs": ("local.epochs", (1, 2, 5, 10)),
    "radius": ("algorithm.rho", (0.01, 0.05, 0.1, 0.5)),
}


def _sweep(key: str, values: tuple[float, ...]) -> tuple[Entry, ...]:
    """List FedVSSAM with every value of a setting."""
    one = make_method("FedVSSAM", a=MIXING[SEVERE])
    return tuple(Entry(f"{value:g}", {**one.settings, key: value}, "FedVSSAM") for value in values)


FIGURE9 = Artefact(
    "figure9",
    "Sensitivity of FedVSSAM to its settings",
    Layout(
        tuple(
            make_panel("sweep", *SEVERE_CIFAR10, _sweep(key, values), title, x=key, label=title)
            for title, (key, values) in SWEEPS.items()
        )
    ),
    note="Data set and values are lost: CIFAR-10, Dirichlet, severe and the values shown stand in; that final "
    f"accuracies are shown is a guess. {LOST}",
)

PAPER = Paper(
    "fedvssam",
    "FedVSSAM",
    "FedVSSAM: Mitigating Flatness Incompatibility in Sharpness-Aware Federated Learning",
    "preprint; its authors are lost in our copy",
    BASE,
    SEEDS,
    (
        *(TABLE1, TABLE2, TABLE3, TABLE4, TABLE5),
        *(FIGURE1, FIGURE2, FIGURE3, FIGURE4, FIGURE5, FIGURE6, FIGURE7, FIGURE8, FIGURE9),
    ),
    most_seeds={"digits": 1},  # there are many runs
)
