"""The experiments that findings are judged by, declared like a paper: `landscape reproduce findings`.

As they stand they run on Fashion-MNIST, and one of them on CIFAR-10, in hours (`--scale small`; `full` is the same); at
scale `digits` in minutes. Radii are those of the papers for ten classes; nothing was tuned for the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping

from reports.artefact import Artefact, Entry, Grid, Layout, Panel, Paper, Question
from reports.findings.catalog import HETEROGENEOUS, HOMOGENEOUS
from reports.quantities.catalog import ACCURACY, QUANTITIES

RADIUS = 0.1
ALPHAS = {HETEROGENEOUS: 0.0, HOMOGENEOUS: 100.0}  # one class at every client, all classes
SWA = {"start": 0.75, "cycle": 5, "lr_end": 0.0005}
METHODS: Mapping[str, Mapping[str, object]] = {
    "FedAvg": {"algorithm": {"name": "fedavg"}},
    "FedSAM": {"algorithm": {"name": "fedsam", "rho": RADIUS}},
    "FedASAM": {"algorithm": {"name": "fedasam", "rho": 0.7, "eta": 0.2}},
    "FedASAM + SWA": {"algorithm": {"name": "fedasam", "rho": 0.7, "eta": 0.2}, "swa": SWA},
    "FedDyn": {"algorithm": {"name": "feddyn", "alpha": 0.01}},
    "FedSMOO": {"algorithm": {"name": "fedsmoo", "rho": RADIUS, "beta": 10.0}},
    "FedGloSS": {"algorithm": {"name": "fedgloss", "rho": RADIUS, "rho_s": RADIUS, "beta": 10.0}},
    "NaiveFedGloSS": {"algorithm": {"name": "naivefedgloss", "rho": RADIUS, "rho_s": RADIUS, "beta": 10.0}},
    "FedVSSAM": {"algorithm": {"name": "fedvssam", "rho": RADIUS}},
    "FedSoL": {"algorithm": {"name": "fedsol", "rho": 2.0}},
}
ON_CIFAR = ("FedAvg", "FedSAM", "FedASAM", "FedASAM + SWA", "FedDyn", "FedSMOO", "FedGloSS", "FedVSSAM")
LAMBDA = Question("curvature", "lambda", {"rounds": "last", "top": 5}, small={"limit": 2000})
LOCAL = Question("local_global", "clients", {"rounds": "last", "clients": 5}, small={"limit": 50})
AGREEMENT = Question(
    "incompatibility",
    "agreement",
    {"rounds": "last", "clients": 50, "radius": RADIUS, "steps": 0, "batches": 0},
    small={"limit": 50},
)
CLASSES = Question("forgetting", "classes", {"local": False}, small={"clients": 1})
LINE = Question(
    "interpolation",
    "line",
    {"rounds": "last", "pairs": ("run-run",), "steps": 21},
    digits={"steps": 11},
    small={"steps": 11, "limit": 2000},
)
PERSONAL = {  # as FedFSA measures: clients' own models on their own test examples, every round
    "data.pooled": True,
    "partition": {"name": "dirichlet_per_class", "clients": 100, "beta": 0.5},
    "rounds.aggregation": "uniform",
    "evaluation.personal": True,
    "evaluation.every": 10,
}


SHOWN = {  # heading of a column -> what it shows
    "accuracy (%)": ACCURACY,
    "λ₁": QUANTITIES["lambda_1"],
    "λ₁ local": QUANTITIES["local"],
    "λ₁ everyone": QUANTITIES["everyone"],
}
PERSONAL_ACCURACY = QUANTITIES["best_personal_accuracy"]


def _list_columns(alphas: Mapping[str, float]) -> tuple[Entry, ...]:
    return tuple(
        Entry(heading, {"partition.alpha": alpha}, group, quantity=quantity)
        for group, alpha in alphas.items()
        for heading, quantity in SHOWN.items()
    )


def _list_panels(kind: str, alphas: Mapping[str, float], options: Mapping[str, object]) -> tuple[Panel, ...]:
    return tuple(
        Panel(kind, _list_rows(), group, {"partition.alpha": alpha}, options) for group, alpha in alphas.items()
    )


def _list_rows(names: tuple[str, ...] = tuple(METHODS)) -> tuple[Entry, ...]:
    return tuple(Entry(name, METHODS[name]) for name in names)


def _fedvssam(**switches: object) -> Mapping[str, object]:
    return {"algorithm": {"name": "fedvssam", "rho": RADIUS, **switches}}


def _fedfsa(**choice: object) -> Mapping[str, object]:
    return {"algorithm": {"name": "fedfsa", "rho": 0.05, "rho_larger": 0.9, "layers": 2, "a": 0.1, **choice}}


METHODS_GRID = Artefact(
    "methods",
    "Ten methods with one class at every client, and with all classes",
    Grid(_list_rows(), _list_columns(ALPHAS)),
    questions=(LAMBDA, LOCAL, AGREEMENT, CLASSES),
)
CIFAR = Artefact(
    "cifar10",
    "Eight methods on CIFAR-10 with LeNet64, on a moderate and on a homogeneous partition",
    Grid(_list_rows(ON_CIFAR), _list_columns({HETEROGENEOUS: 1.0, HOMOGENEOUS: 100.0})),
    settings={"data.name": "cifar10", "model.name": "lenet64", "rounds.count": 200, "augment.flip": True},
    questions=(LAMBDA, LOCAL, AGREEMENT, CLASSES),
    note="With one class at every client LeNet64 stays at chance for hundreds of rounds, hence a moderate partition.",
)
CURVES = Artefact(
    "curves",
    "Accuracy over rounds",
    Layout(_list_panels("curves", ALPHAS, {"metric": "accuracy"})),
)
SHARPNESS = Artefact(
    "sharpness",
    "Largest Hessian eigenvalue of the global model",
    Layout(_list_panels("bars", ALPHAS, {"quantity": QUANTITIES["lambda_1"]})),
    questions=(LAMBDA,),
)
BASIN = Artefact(
    "basin",
    "The line between FedGloSS and NaiveFedGloSS",
    Layout(
        (
            Panel(
                "interpolation",
                _list_rows(("FedGloSS", "NaiveFedGloSS")),
                "with one class at every client",
                {"partition.alpha": 0.0},
                question=LINE,
                every_seed=True,
            ),
        ),
        across=1,
    ),
)
ADMM = Artefact(
    "admm",
    "The error of FedGloSS's perturbation with and without duals",
    Layout(
        (
            Panel(
                "curves",
                (
                    Entry("FedGloSS", METHODS["FedGloSS"]),
                    Entry(
                        "FedGloSS without ADMM",
                        {"algorithm": {"name": "fedgloss", "rho": RADIUS, "rho_s": RADIUS, "beta": float("inf")}},
                    ),
                ),
                HETEROGENEOUS,
                {"partition.alpha": 0.0, "record": ["delta_epsilon"]},
                {"metric": "delta_epsilon"},
            ),
        ),
        across=1,
    ),
    settings={"rounds.count": 100},
)
ABLATION = Artefact(
    "ablation",
    "FedVSSAM's three operations, one at a time",
    Grid(
        (
            Entry("FedVSSAM-base", _fedvssam(lf=False, lu=False, gu=False)),
            Entry("LF", _fedvssam(lf=True, lu=False, gu=False)),
            Entry("LU", _fedvssam(lf=False, lu=True, gu=False)),
            Entry("GU", _fedvssam(lf=False, lu=False, gu=True)),
            Entry("FedVSSAM", METHODS["FedVSSAM"]),
        ),
        (Entry(HETEROGENEOUS, {"partition.alpha": 0.0}),),
        ACCURACY,
    ),
)
SELECTION = Artefact(
    "selection",
    "Which layers FedFSA perturbs most",
    Grid(
        (
            Entry("FedFSA", _fedfsa(select="top")),
            Entry("Random", _fedfsa(select="random")),
            Entry("Reverse", _fedfsa(select="reverse")),
        ),
        (Entry("Dir(0.3)", {"partition": {"name": "dirichlet_per_class", "clients": 100, "beta": 0.3}}),),
        PERSONAL_ACCURACY,
    ),
    settings=PERSONAL,
)
PERSONALISED = Artefact(
    "personal",
    "FedFSA and MoFedSAM on Fashion-MNIST, models of the clients' own",
    Grid(
        (
            Entry("FedAvg", {"algorithm": {"name": "fedavg"}}),
            Entry("MoFedSAM", {"algorithm": {"name": "mofedsam", "rho": 0.1, "a": 0.1}}),
            Entry("FedFSA", {"algorithm": {"name": "fedfsa", "rho": 0.1, "rho_larger": 0.2, "layers": 2, "a": 0.1}}),
        ),
        (Entry("Dir(0.5)", {}),),
        PERSONAL_ACCURACY,
    ),
    settings=PERSONAL,
)

PAPER = Paper(
    key="findings",
    name="Findings",
    title="Which claims of the papers hold on our own runs",
    where="this project",
    settings={
        "data.name": "fashion_mnist",
        "partition.name": "dirichlet_total",
        "partition.clients": 100,
        "model.name": "fsa_cnn",
        "local.lr": 0.05,
        "local.batch_size": 50,
        "local.weight_decay": 4e-4,
        "rounds.count": 300,
        "rounds.participants": 10,
        "evaluation.every": 10,
        "evaluation.last": 20,
        "checkpoints.every": 100,
        "checkpoints.keep_locals": "all",
    },
    seeds=(0, 1, 2, 3, 4),
    artefacts=(METHODS_GRID, CURVES, SHARPNESS, CIFAR, BASIN, ADMM, ABLATION, SELECTION, PERSONALISED),
    most_seeds={"digits": 5, "small": 3},
    made_for="small",
    at_digits={"rounds.count": 60, "checkpoints.every": 20},  # methods differ only once they have learned
)
