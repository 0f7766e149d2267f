"""The figures of the FedSoL paper."""

from __future__ import annotations

from collections.abc import Mapping

from reports.artefact import Artefact, Entry, Layout, NotReproduced, Panel, Question, Settings
from reports.papers.fedsol.runs import (
    CIFAR10,
    CINIC10,
    EIGHT,
    LAST_NOTE,
    LDA,
    OURS,
    PATHMNIST,
    SEEDS_NOTE,
    SHARDING,
    SVHN,
    TISSUEMNIST,
    USUAL_NOTE,
    make_series,
    use_lda,
    use_method,
    use_partition,
)
from reports.quantities.catalog import ACCURACY

LOCALS: Settings = {"checkpoints.keep_locals": "all"}
TWO = ("FedAvg", "FedSoL")
RADII = (0.5, 1.0, 2.0)  # of figure 9
KNOWLEDGE = Question(
    "forgetting",
    "over_rounds",
    {"rounds": "all", "local": True},
    digits={"limit": 300},
    small={"limit": 1000},
)
DRIFT = Question("drift", "over_rounds", {"rounds": "all"}, digits={"limit": 200}, small={"limit": 500})
EIGENVALUES = Question(
    "curvature",
    "top5",
    {"rounds": "last", "top": 5},
    digits={"limit": 400},
    small={"limit": 2000},
)
EIGEN_SURFACE = Question(
    "surface",
    "eigen",
    {"rounds": "last", "axes": "eigen", "steps": 21, "extent": 1.0, "splits": ["train"]},
    digits={"steps": 11, "limit": 400},
    small={"limit": 2000},
)
ADAPTIVE = Question(
    "sensitivity",
    "adaptive",
    {"rounds": "200"},
    digits={"rounds": "13", "limit": 200},  # two thirds of the run, as there
    small={"rounds": "last", "limit": 500},
)


def draw_sweep(title: str, key: str, label: str, values: Mapping[str, Settings]) -> Panel:
    """Draw the accuracy of FedAvg and FedSoL against a setting.

    key: of the setting. label: of the axis. values: settings of each value, by its name.
    """
    series = tuple(
        Entry(f"{method}, {name}", {**use_method(method), **settings}, method)
        for method in TWO
        for name, settings in values.items()
    )
    return Panel("sweep", series, title, options={"x": key, "label": label, "quantity": ACCURACY})


def draw_radii(title: str, kinds: Mapping[str, str]) -> Panel:
    """Draw the accuracy of FedSoL against its radius.

    kinds: of the radius, by the name of the line.
    """
    lines = tuple(
        make_series("FedSoL", f"{line}, {rho:g}", line, rho=rho, **({} if kind == "fixed" else {"radius": kind}))
        for line, kind in kinds.items()
        for rho in (0.1, 0.5, 1.0, 2.0)
    )
    series = lines if len(kinds) > 1 else (make_series("FedAvg", group="FedAvg"), *lines)
    return Panel("sweep", series, title, options={"x": "algorithm.rho", "label": "ρ", "quantity": ACCURACY})


FIGURE2 = Layout(
    (
        draw_sweep(
            "(a)",
            "rounds.participants",
            "clients a round",
            {f"{ratio:g}": {"rounds.participants": round(100 * ratio)} for ratio in (0.02, 0.1, 0.2, 0.3)},
        ),
        draw_sweep(
            "(b)", "local.epochs", "local epochs", {str(many): {"local.epochs": many} for many in (1, 5, 10, 20)}
        ),
        draw_sweep(
            "(c)", "local.lr", "learning rate", {f"{lr:g}": {"local.lr": lr} for lr in (0.005, 0.01, 0.05, 0.1)}
        ),
        draw_radii("(d)", {"FedSoL": "fixed"}),
    ),
)
FIGURE3 = Layout(
    tuple(
        Panel(kind, tuple(make_series(method) for method in TWO), title)
        for kind, title in (("local_accuracy", "(a)"), ("class_curves", "(b)"))
    )
)
FIGURE9 = Layout(
    tuple(
        Panel("curves", tuple(make_series("FedSoL", f"ρ = {rho:g}", rho=rho) for rho in RADII), title, options=options)
        for title, options in (
            ("(a)", {"study": "drift", "metric": "mean_proximal_loss"}),
            ("(b)", {"metric": "proximal_cosine"}),
        )
    )
)
FIGURE10 = Layout(
    tuple(
        Panel("curves", tuple(make_series(method) for method in TWO), title, options={"study": "drift", "metric": name})
        for title, name in (("(a)", "mean_distance"), ("(b)", "mean_pair_distance"))
    )
)

FIGURES = (
    Artefact("figure1", "Scenarios of federated learning", NotReproduced("a concept drawing")),
    Artefact(
        "figure2",
        "FedAvg and FedSoL with other sampling ratios, local epochs, learning rates and radii, CIFAR-10 LDA (α = 0.1)",
        FIGURE2,
        use_lda(CIFAR10),
        note=(
            f"{USUAL_NOTE}. Of the swept values only the ratio 0.02 is legible: 0.1, 0.2 and 0.3, epochs 1, 5, 10 and "
            "20, rates 0.005 to 0.1, and the radii of Table 4 stand in"
        ),
    ),
    Artefact(
        "figure3",
        "Global and local models on everyone's test data, and the global model by class, CIFAR-10 (s = 2)",
        FIGURE3,
        {**use_partition(CIFAR10, SHARDING, 2), **LOCALS},
        questions=(KNOWLEDGE,),
        note=f"{SEEDS_NOTE}. Every twentieth round is shown",
    ),
    Artefact(
        "figure4",
        "Loss in the plane of the two top eigenvectors, CIFAR-10 LDA (α = 0.1)",
        Layout(
            tuple(Panel("eigen_surface", (make_series(name),), name) for name in ("FedAvg", "FedASAM", "FedSoL")), 3
        ),
        use_lda(CIFAR10),
        questions=(EIGENVALUES, EIGEN_SURFACE),
        seeds=(0,),
        note="Range, steps and data are not stated: from -1 to 1 in 21 steps on the training set stand in",
    ),
    Artefact("figure5", "Images of PathMNIST and TissueMNIST", NotReproduced("example images")),
    Artefact(
        "figure6",
        "Splits of CIFAR-10 over 10 clients",
        Layout(
            tuple(
                Panel("partition", (Entry(title, {"partition": split, **use_method("FedAvg")}),), title)
                for title, split in {
                    "Sharding (s = 2)": {"name": "shards", "clients": 10, "shards_per_client": 2},
                    "LDA (α = 0.1)": {"name": "dirichlet_by_class", "clients": 10, "alpha": 0.1},
                }.items()
            )
        ),
        {**use_partition(CIFAR10, LDA, 0.1), "rounds.count": 1, "rounds.participants": 1},
        seeds=(0,),
        note="s and α are lost: 2 and 0.1 stand in. Only the split is shown, of runs of one round",
    ),
    Artefact(
        "figure7",
        "Accuracy over rounds, LDA (α = 0.1)",
        Layout(
            tuple(
                Panel(
                    "curves",
                    tuple(make_series(name, OURS.get(name, name)) for name in EIGHT),
                    data.title,
                    use_lda(data),
                    {"window": 5},
                )
                for data in (CIFAR10, SVHN, CINIC10, PATHMNIST, TISSUEMNIST)
            ),
            across=3,
        ),
        note=(
            f"{SEEDS_NOTE}. Which data sets are shown is lost: those of Table 1 stand in. The window of the smoothing "
            "is not stated: five rounds stand in"
        ),
    ),
    Artefact(
        "figure8",
        "FedSoL with a fixed and an adaptive radius, CIFAR-10 LDA (α = 0.1)",
        Layout(
            (
                draw_radii("(a)", {"fixed": "fixed", "adaptive": "adaptive"}),
                Panel(
                    "layers",
                    (make_series("FedSoL", "adaptive", rho=1.0, radius="adaptive"),),  # as that line of (a)
                    "(b) ρ = 1",
                    options={"variable": "adaptive", "joined": True, "at": 200 / CIFAR10.rounds},
                ),
            )
        ),
        {**use_lda(CIFAR10), **LOCALS},
        questions=(ADAPTIVE,),
        note=f"{SEEDS_NOTE}. {LAST_NOTE}. The radii of the first panel are lost: those of Table 4 stand in",
    ),
    Artefact(
        "figure9",
        "FedSoL's proximal loss, and its gradient's angle with the proximal one, CIFAR-10 LDA (α = 0.1)",
        FIGURE9,
        {**use_lda(CIFAR10), **LOCALS, "record": ["proximal_cosine"]},
        questions=(DRIFT,),
        note=(
            f"{SEEDS_NOTE}. The radii and what the axis counts are lost: 0.5, 1 and 2 of Table 4, over rounds, stand "
            "in; the angle is the mean over the local steps of a round"
        ),
    ),
    Artefact(
        "figure10",
        "Distance of local models from the global one, and from each other, CIFAR-10 LDA (α = 0.1)",
        FIGURE10,
        {**use_lda(CIFAR10), **LOCALS},
        questions=(DRIFT,),
        note=f"{SEEDS_NOTE}. Every twentieth round is shown",
    ),
)
