"""The figures of the FedSAM paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.artefact import Artefact, Entry, Layout, Panel, Question, Settings
from reports.papers.fedsam.runs import CIFAR10, CIFAR100, DataSet, Training, use_centralised, use_training
from reports.papers.fedsam.tables import METHODS, NO_SEEDS, SEVEN, SIX, THREE, TOP_50, use_rival
from reports.quantities.catalog import ACCURACY

SHOWN = {"train": "training loss", "test": "test error"}  # in planes
ALPHAS = {"α = 0": 0, "α = 0.5": 1, "α = 1k": 2}  # of CIFAR100
LAST: Settings = {"checkpoints.keep_locals": "last"}
OVER_ROUNDS: Settings = {"checkpoints.keep_locals": "all"}
EACH_CLIENT: Settings = {"evaluation.clients": True, "evaluation.draw": 100}  # as many as a class has in the test set
SURFACE = Question(
    "surface",
    "random",
    {"rounds": "last", "axes": "random", "steps": 21, "extent": 1.0, "splits": ["train"]},
    digits={"steps": 11, "limit": 400},
    small={"limit": 2000},
)
LOCAL_PLANE = Question(
    "plane",
    "locals",
    {"models": "clients", "rounds": "last", "steps": 21, "splits": ["train", "test"]},
    digits={"steps": 9, "limit": 400},
    small={"limit": 2000},
)
LOCAL_CURVATURE = Question(
    "local_global",
    "over_rounds",
    {"rounds": "1000,2000,5000,10000,15000,20000", "top": 1},
    digits={"rounds": "2,4,8,16,26,34", "limit": 200, "tol": 1e-2},  # about the same shares of the run
    small={"rounds": "8,16,40,72,112,150", "limit": 500},
)
OUTPUT_NORMS = Question(
    "forgetting",
    "over_rounds",
    {"rounds": "every 1000", "local": False},
    digits={"rounds": "all", "limit": 200},
    small={"rounds": "all", "limit": 500},
)
CORRUPTED_NOTE = "The files of CIFAR-10-C and CIFAR-100-C are used where they lie beside the data"
CORRUPTED = Question(
    "robustness",
    "severity5",
    {"rounds": "last", "severities": [5]},
    digits={"limit": 200, "black": [0.0], "white": [1.0]},
    small={"limit": 1000},
)


def train(data: DataSet, place: int, label: str, training: Training | None = None) -> Entry:
    """Make a series: one of the methods of the tables, or another training, on a split of a data set."""
    return Entry(label, use_training(data, place, training or METHODS[label]))


def make_plane_question(name: str, split: str) -> Question:
    """Make the question about the plane through the final models of three runs."""
    settings = {"models": "runs", "rounds": "last", "steps": 21, "splits": [split]}
    return Question("plane", name, settings, digits={"steps": 9, "limit": 400}, small={"limit": 2000})


def draw_planes(series: Sequence[Entry], title: str) -> tuple[Panel, ...]:
    """Draw the training loss and the test error in the plane through the models of three runs."""
    return tuple(
        Panel(
            "plane",
            tuple(series),
            f"{title}{SHOWN[split]}",
            options={"split": split},
            question=make_plane_question(split, split),
        )
        for split in SHOWN
    )


def draw_local_plane(alpha: str, split: str) -> Panel:
    """Draw the plane through three local models of FedAvg's last round."""
    series = (train(CIFAR100, ALPHAS[alpha], "FedAvg"),)
    return Panel("plane", series, f"{alpha}, {SHOWN[split]}", options={"split": split})


def draw_spectrum(alpha: str) -> Panel:
    """Draw the fifty largest eigenvalues of the methods of Table 1."""
    return Panel("spectrum", tuple(train(CIFAR100, ALPHAS[alpha], name) for name in SEVEN), alpha)


def draw_map(name: str, alpha: str, what: str) -> Panel:
    """Draw a map of clients by rounds of one run."""
    return Panel("heat", (train(CIFAR100, ALPHAS[alpha], name),), f"{name}, {alpha}", options={"what": what})


def draw_corruptions(data: DataSet, place: int, methods: Sequence[str]) -> Panel:
    """Draw the accuracy of methods under every corruption."""
    series = tuple(train(data, place, name) for name in methods)
    title = f"{data.title}-C, {data.radii[place].split}"
    return Panel("corruptions", series, title, {"rounds.participants": 20}, {"severity": 5})


def draw_sweep(title: str, key: str, label: str, chosen: Mapping[str, Settings]) -> Panel:
    """Draw the accuracy against a setting of the perturbation, a line for each alpha.

    key: of the setting. label: of the axis. chosen: the methods, by the name of the value.
    """
    series = tuple(
        Entry(
            f"{alpha}, {name}",
            {**use_training(CIFAR100, place, Training("fedavg")), "algorithm": algorithm},
            alpha,
            key=f"{alpha}, {name}",
        )
        for alpha, place in ALPHAS.items()
        for name, algorithm in chosen.items()
    )
    return Panel("sweep", series, title, options={"x": key, "label": label, "quantity": ACCURACY})


def use_momentum(data: DataSet, perturbation: str) -> Settings:
    """Return the settings of FedAvgM with SWA, and with SAM or ASAM or neither, at alpha = 0."""
    return {
        **use_training(data, 0, Training("fedavg", swa=True)),
        **use_rival("FedAvgM", data, 0, perturbation),
        "rounds.participants": 20,
    }


SENSITIVITY = (
    draw_sweep(
        "SAM",
        "algorithm.rho",
        "ρ",
        {f"{rho:g}": {"name": "fedsam", "rho": rho} for rho in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)},
    ),
    draw_sweep(
        "ASAM, η = 0.2",
        "algorithm.rho",
        "ρ",
        {f"{rho:g}": {"name": "fedasam", "rho": rho, "eta": 0.2} for rho in (0.05, 0.1, 0.2, 0.5, 0.7, 1.0, 2.0)},
    ),
    draw_sweep(
        "ASAM, ρ = 0.5",
        "algorithm.eta",
        "η",
        {f"{eta:g}": {"name": "fedasam", "rho": 0.5, "eta": eta} for eta in (0.0, 0.01, 0.1, 0.2)},
    ),
)
LONG = 10  # how many times larger the budget of figure 3c is
FIGURE3 = Layout(
    (
        *(
            Panel("client_curves", (train(CIFAR100, ALPHAS[alpha], "FedAvg"),), alpha, EACH_CLIENT)
            for alpha in ("α = 0", "α = 1k")
        ),
        Panel(
            "curves",
            (
                *(
                    Entry(
                        alpha,
                        {
                            **use_training(CIFAR100, place, METHODS["FedAvg"]),
                            "rounds.count": LONG * CIFAR100.rounds,
                            "checkpoints.every": LONG * 1000,
                            "evaluation.every": LONG * 10,
                        },
                    )
                    for alpha, place in ALPHAS.items()
                ),
                Entry("centralised", use_centralised(METHODS["FedAvg"])),
            ),
            "ten times as many rounds",
            options={"x": "share"},
        ),
    ),
    across=3,
)

FIGURES = (
    Artefact(
        "figure1",
        "Loss of the global model, CIFAR100",
        Layout(
            tuple(
                Panel("surface", (train(CIFAR100, ALPHAS[alpha], name),), f"{name}, {alpha}")
                for alpha in ("α = 0", "α = 1k")
                for name in ("FedAvg", "FedASAM")
            )
        ),
        questions=(SURFACE,),
        note=f"{NO_SEEDS}. Range and steps are not stated: from -1 to 1 in 21 steps stand in",
    ),
    Artefact(
        "figure2",
        "Planes through three models of FedAvg, CIFAR100: global models of three splits, then local models",
        Layout(
            (
                *draw_planes([train(CIFAR100, place, alpha, METHODS["FedAvg"]) for alpha, place in ALPHAS.items()], ""),
                draw_local_plane("α = 0", "test"),
                draw_local_plane("α = 1k", "test"),
            )
        ),
        LAST,
        questions=(LOCAL_PLANE,),
        note=NO_SEEDS,
    ),
    Artefact(
        "figure3",
        "Accuracy of FedAvg over rounds, CIFAR100: on the data of every client, and with a larger budget",
        FIGURE3,
        questions=(Question("training", "metrics"),),
        note=(
            f"{NO_SEEDS}. How long the curves of the third panel are is lost: ten times the rounds, as the text says, "
            "stand in for all three; the centralised schedule is not printed and 300 epochs stand in"
        ),
    ),
    Artefact(
        "figure4",
        "Largest eigenvalue of local models on their own data, by client and round, CIFAR100",
        Layout(
            tuple(
                draw_map(name, alpha, "local_sharpness")
                for alpha in ("α = 0", "α = 1k")
                for name in ("FedAvg", "FedASAM")
            )
        ),
        OVER_ROUNDS,
        questions=(LOCAL_CURVATURE,),
        note=f"{NO_SEEDS}. The rounds are those on the axes of figure 16",
    ),
    Artefact(
        "figure5",
        "The 50 largest eigenvalues of the global model, CIFAR100",
        Layout((draw_spectrum("α = 0"), draw_spectrum("α = 1k"))),
        questions=(TOP_50,),
        note=f"{NO_SEEDS}. The legend is partly lost: the methods of Table 1 stand in",
    ),
    Artefact(
        "figure6",
        "Accuracy under 19 corruptions at severity 5, α = 0, 20 clients a round",
        Layout(
            tuple(
                draw_corruptions(data, 0, ("FedAvg", "FedASAM", "FedAvg + SWA", "FedASAM + SWA"))
                for data in (CIFAR10, CIFAR100)
            ),
            across=1,
        ),
        questions=(CORRUPTED,),
        note=f"{NO_SEEDS}. {CORRUPTED_NOTE}",
    ),
    Artefact(
        "figure7",
        "Norm of the global model's output on the data of every client, FedAvg, CIFAR100",
        Layout(tuple(draw_map("FedAvg", alpha, "output_norm") for alpha in ("α = 0", "α = 1k"))),
        questions=(OUTPUT_NORMS,),
        note=f"{NO_SEEDS}. Which rounds are shown is lost: every thousandth stands in",
    ),
    Artefact(
        "figure8",
        "Accuracy under 19 corruptions at severity 5, all splits, 20 clients a round",
        Layout(
            tuple(draw_corruptions(data, place, SIX) for data in (CIFAR10, CIFAR100) for place in range(3)), across=1
        ),
        questions=(CORRUPTED,),
        note=f"{NO_SEEDS}. {CORRUPTED_NOTE}",
    ),
    Artefact(
        "figure9",
        "Accuracy against the settings of SAM and ASAM, CIFAR100, 5 clients a round",
        Layout(SENSITIVITY, across=3),
        note=NO_SEEDS,
    ),
    Artefact(
        "figure10",
        "Accuracy over rounds with server momentum and SWA, α = 0, 20 clients a round",
        Layout(
            tuple(
                Panel(
                    "curves",
                    (
                        Entry("FedAvgM + SWA", use_momentum(data, "")),
                        Entry(f"Fed{kind.upper()}M + SWA", use_momentum(data, kind)),
                    ),
                    data.title,
                )
                for data, kind in ((CIFAR10, "asam"), (CIFAR100, "sam"))
            )
        ),
        note=NO_SEEDS,
    ),
    Artefact(
        "figure11",
        "Accuracy over rounds without and with SWA, α = 0, 5 clients a round",
        Layout(
            tuple(
                Panel("curves", tuple(train(data, 0, name) for name in SIX), data.title) for data in (CIFAR10, CIFAR100)
            )
        ),
        note=NO_SEEDS,
    ),
    Artefact(
        "figure12",
        "Plane through three local models of FedAvg, CIFAR100",
        Layout((draw_local_plane("α = 0.5", "test"),)),
        LAST,
        questions=(LOCAL_PLANE,),
        note=NO_SEEDS,
    ),
    Artefact(
        "figure13",
        "Planes through three local models of FedAvg, CIFAR100",
        Layout(tuple(draw_local_plane(alpha, "train") for alpha in ALPHAS), across=3),
        LAST,
        questions=(LOCAL_PLANE,),
        note=NO_SEEDS,
    ),
    Artefact(
        "figure14",
        "Planes through the global models of FedAvg, FedSAM and FedASAM, CIFAR100",
        Layout(
            tuple(
                panel
                for alpha in ("α = 0", "α = 0.5")
                for panel in draw_planes([train(CIFAR100, ALPHAS[alpha], name) for name in THREE], f"{alpha}, ")
            )
        ),
        note=NO_SEEDS,
    ),
    Artefact(
        "figure15",
        "The 50 largest eigenvalues of the global model, CIFAR100",
        Layout((draw_spectrum("α = 0.5"),)),
        questions=(TOP_50,),
        note=NO_SEEDS,
    ),
    Artefact(
        "figure16",
        "Largest eigenvalue of local models on their own data, by client and round, CIFAR100",
        Layout(
            tuple(draw_map(name, alpha, "local_sharpness") for alpha in ALPHAS for name in THREE),
            across=3,
        ),
        OVER_ROUNDS,
        questions=(LOCAL_CURVATURE,),
        note=NO_SEEDS,
    ),
)
