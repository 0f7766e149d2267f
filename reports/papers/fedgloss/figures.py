"""The figures of the FedGloSS paper."""

from __future__ import annotations

from dataclasses import replace

from reports.artefact import Artefact, Entry, Layout, NotReproduced, Panel, Question
from reports.papers.fedgloss.runs import (
    ALPHAS,
    BLOCKS,
    CENTRALISED,
    GUESSED,
    LAMBDA,
    LAMBDA_1,
    NO_DUALS,
    ONE_DECIMAL,
    SAM,
    SETUPS,
    SGD,
    SURFACE,
    make_method,
    make_panel,
    name_setup,
    tune,
)
from reports.papers.fedgloss.tables import CLIENTS, CNN_SETTINGS

AVG, SAMS = make_method("FedAvg", "fedavg"), make_method("FedSAM", "fedsam")
SMOO, GLOSS = make_method("FedSMOO", "fedsmoo"), make_method("FedGloSS", "fedgloss")
NAIVE = make_method("NaiveFedGloSS", "naivefedgloss")
DIRECTIONS = (
    "All models have the same random directions, each scaled to the filters of its own model; the axes reach from -1 "
    "to 1. The number of grid points is not printed: 21 along each axis stand in. "
)
LOCAL_SURFACE = replace(SURFACE, name="local_surface", settings={**SURFACE.settings, "clients": 5})
CIFAR100 = ("cnn cifar100", 0.0)
RESNET10, RESNET100 = ("resnet18 cifar10", 0.05), ("resnet18 cifar100", 0.5)


def draw_surfaces(
    name: str, title: str, *panels: tuple[tuple[str, float], Entry, Entry], across: int = 2, note: str = ""
) -> Artefact:
    """Declare a figure of surfaces of global models.

    panels: setup and alpha, the method drawn solid, and the one drawn as a net.
    """
    drawn = tuple(make_panel("surface", *where, (solid, net), scale=where[0]) for where, solid, net in panels)
    return Artefact(
        name, title, Layout(drawn, across), questions=(SURFACE,), seeds=(0,), note=note + DIRECTIONS + GUESSED
    )


def draw_local_surfaces(name: str, title: str, *panels: tuple[int, tuple[Entry, ...]], note: str = "") -> Artefact:
    """Declare a figure of surfaces of local models on their own data and on everyone's.

    panels: place of the client in the last cohort, and the methods; the second one's is drawn as a net.
    """
    drawn = tuple(
        make_panel("local_surfaces", *CIFAR100, series, f"{series[0].label}, participant {place + 1}", client=place)
        for place, series in panels
    )
    return Artefact(
        name,
        title,
        Layout(drawn, 2 if len(drawn) == 4 else 3),
        settings={"checkpoints.keep_locals": "last"},
        questions=(LOCAL_SURFACE,),
        seeds=(0,),
        note=note
        + f"The paper names its participants by their only class: {', '.join(CLIENTS['cifar100'])}. "
        + DIRECTIONS
        + GUESSED,
    )


FIGURE1 = draw_surfaces(
    "figure1",
    "Global loss of FedAvg (solid) and FedSAM (net) with more and less heterogeneity",
    *((where, AVG, SAMS) for where in CNN_SETTINGS),
    note="Titles of the panels are lost: the four settings of Table 3 stand in. ",
)
FIGURE2 = draw_local_surfaces(
    "figure2",
    "FedSAM's local models on their own data and on everyone's",
    *((place, (SAMS,)) for place in range(3)),
    note="Which three clients are shown is lost: the first three of Table 1 stand in. ",
)
FIGURE3 = Artefact("figure3", "One round of FedGloSS against FedAvg", NotReproduced("a concept drawing"))
FIGURE4 = Artefact(
    "figure4",
    "Distance between FedGloSS's perturbation and the true one, with and without ADMM",
    Layout(
        tuple(
            make_panel(
                "curves",
                f"cnn {data}",
                0.0,
                (replace(GLOSS, label="with ADMM"), make_method("without ADMM", "fedgloss", beta=NO_DUALS)),
                metric="delta_epsilon",
            )
            for data in ALPHAS
        )
    ),
    settings={"record": ["delta_epsilon"]},
    note="The level of heterogeneity is lost: alpha = 0 stands in. " + GUESSED,
)
FIGURE5 = draw_local_surfaces(
    "figure5",
    "Local models of FedGloSS and FedSMOO on their own data and on everyone's",
    *((place, (GLOSS, SAMS)) for place in (0, 1)),
    *((place, (SMOO, GLOSS)) for place in (0, 1)),
    note="As a net: FedSAM's global loss in the first row, FedGloSS's in the second. ",
)
FIGURE6 = draw_surfaces(
    "figure6",
    "Global loss of FedGloSS (net) against FedSAM and FedSMOO (solid)",
    *((where, solid, GLOSS) for where in (("cnn cifar10", 0.0), CIFAR100, RESNET10) for solid in (SAMS, SMOO)),
    note="The data set of the ResNet18 panels is lost: CIFAR10 stands in. ",
)
FIGURE7 = Artefact(
    "figure7",
    "Largest Hessian eigenvalue of the global model, CNN",
    Layout(
        tuple(
            make_panel(
                "bars",
                *where,
                tuple(replace(one, label=one.key, group="") for one in BLOCKS),
                quantity=LAMBDA_1,
            )
            for where in CNN_SETTINGS
        )
    ),
    questions=(LAMBDA,),
    note=GUESSED,
)
FIGURE8 = Artefact(
    "figure8",
    "Norm of the global model over rounds, methods with SAM, ResNet18",
    Layout(tuple(make_panel("curves", *where, BLOCKS[5:], metric="norm") for where in (RESNET10, RESNET100))),
    note=GUESSED,
)
FIGURE9 = Artefact(
    "figure9",
    "Loss between NaiveFedGloSS and FedGloSS",
    Layout(
        tuple(
            replace(
                make_panel("interpolation", f"cnn {data}", 0.0, (NAIVE, GLOSS)),
                question=Question(
                    "interpolation",
                    "naive",
                    {"pairs": ["run-run"], "low": -1.0, "high": 2.0, "steps": 21, "batchnorm": ["interpolated"]},
                    {"steps": 11, "limit": 400},
                    {"limit": 2000},
                ),
            )
            for data in ALPHAS
        )
    ),
    seeds=(0,),
    note="The level of heterogeneity is lost: alpha = 0 stands in, and 21 points from one model to the other for their "
    "unprinted number. " + GUESSED,
)
FIGURE10 = draw_local_surfaces(
    "figure10",
    "FedGloSS's local models on their own data and on everyone's; FedSAM's as a net",
    *((place, (GLOSS, SAMS)) for place in (2, 3, 4)),
)
FIGURE11 = draw_local_surfaces(
    "figure11",
    "FedSMOO's local models on their own data and on everyone's; FedGloSS's as a net",
    *((place, (SMOO, GLOSS)) for place in (2, 3, 4)),
)
FIGURE12 = draw_surfaces(
    "figure12",
    "Global loss of FedGloSS (net) against FedAvg (solid), CNN",
    *((where, AVG, GLOSS) for where in CNN_SETTINGS),
    across=4,
    note="Titles of the panels are lost: the settings of Table 3 stand in. ",
)
FIGURE13 = draw_surfaces(
    "figure13",
    "Global loss of FedGloSS (net) against FedSAM and FedSMOO (solid), CNN, milder heterogeneity",
    *((where, solid, GLOSS) for where in (CNN_SETTINGS[1], CNN_SETTINGS[3]) for solid in (SAMS, SMOO)),
    across=4,
)
FIGURE14 = draw_surfaces(
    "figure14",
    "Global loss of FedGloSS (net) against FedAvg, FedSAM and FedSMOO (solid), ResNet18",
    *((where, solid, GLOSS) for where in (RESNET10, RESNET100) for solid in (AVG, SAMS, SMOO)),
    across=3,
)

CENTRAL = tuple(
    make_method(label, name)
    for label, name in (
        ("Centralised SGD", "fedavg"),
        ("Centralised SAM", "fedsam"),
        ("Centralised SAM~", "fedsam-previous"),
    )
)


def centralise(one: Entry) -> Entry:
    """Make a method train on all data in one place."""
    return replace(one, settings={**CENTRALISED, **one.settings})


def _make_curves(setup: str, alpha: float, group: str) -> Panel:
    """Accuracy over rounds of the methods with SGD or with SAM, and the level of centralised training."""
    series = [replace(one, group="") for one in BLOCKS if one.group == group]
    if group == SAM:
        wait = {"cnn cifar10": 2000, "cnn cifar100": 15000}.get(setup)
        series += [make_method("FedSMOO + wp", "fedsmoo", warmup=wait)] if wait else []
    if setup.startswith("cnn"):
        series.append(centralise(CENTRAL[0 if group == SGD else 1]))
    levels = tuple(one.label for one in series if one.label.startswith("Centralised"))
    title = f"{name_setup(setup)[1]}, α={alpha:g}, {group}"
    return make_panel("curves", setup, alpha, tuple(series), title, dashed=levels)


def draw_accuracies(name: str, title: str, *settings: tuple[str, float], note: str = "") -> Artefact:
    """Declare a figure of accuracies over rounds: for every setting the methods with SAM, then those with SGD."""
    panels = tuple(_make_curves(*where, group) for where in settings for group in (SAM, SGD))
    return Artefact(name, title, Layout(panels, 2), note=note + GUESSED)


LEVELS = (
    "FedSMOO + wp has the radius schedule of FedGloSS, whose T_s stands in. The settings of centralised training are "
    "not printed: an epoch a round, 300 rounds, the rate and radius of the federated runs stand in. "
)
FIGURE15 = draw_accuracies("figure15", "Accuracy over rounds, CNN, CIFAR10", *CNN_SETTINGS[:2], note=LEVELS)
FIGURE16 = draw_accuracies("figure16", "Accuracy over rounds, CNN, CIFAR100", *CNN_SETTINGS[2:], note=LEVELS)
FIGURE17 = draw_accuracies("figure17", "Accuracy over rounds, ResNet18", RESNET100, RESNET10)
FIGURE18 = Artefact(
    "figure18",
    "Accuracy over rounds of FedGloSS and NaiveFedGloSS, and of centralised training",
    Layout(
        tuple(
            make_panel(
                "curves",
                *where,
                (GLOSS, NAIVE, *(centralise(one) for one in CENTRAL[1:])),
                dashed=tuple(one.label for one in CENTRAL[1:]),
            )
            for where in CNN_SETTINGS
        )
    ),
    note=LEVELS.partition(". ")[2] + GUESSED,
)

TRIED = {"cnn cifar100": (0.0, (0.01, 0.05, 0.1, 0.2)), "resnet18 cifar100": (0.5, (0.01, 0.05, 0.1, 0.5))}


def _list_radii(setup: str) -> tuple[Entry, ...]:
    """List a line of Figure 19: FedGloSS with several radii of the server."""
    alpha, radii = TRIED[setup]
    line = f"{name_setup(setup)[0]}, α={alpha:g}"
    return tuple(
        replace(
            make_method(f"{radius:g}", "fedgloss", line, f"{line}, {radius:g}", rho_s=radius),
            settings={
                **SETUPS[setup],
                "partition.alpha": alpha,
                "algorithm.name": "fedgloss",
                "algorithm.rho_s": radius,
            },
        )
        for radius in radii
    )


FIGURE19 = Artefact(
    "figure19",
    "FedGloSS with other radii of the server, CIFAR100: accuracy, and largest Hessian eigenvalue",
    Layout(
        (
            Panel(
                "sweep",
                tuple(one for setup in TRIED for one in _list_radii(setup)),
                "accuracy",
                options={"x": "algorithm.rho_s", "label": r"$\rho_s$", "quantity": ONE_DECIMAL},
                adjust=lambda one: tune(one, one),
            ),
            Panel(
                "sweep",
                _list_radii("cnn cifar100"),
                "largest eigenvalue",
                options={"x": "algorithm.rho_s", "label": r"$\rho_s$", "quantity": LAMBDA_1, "second": ONE_DECIMAL},
                adjust=lambda one: tune(one, one),
            ),
        )
    ),
    questions=(LAMBDA,),
    note="The values of the figure are lost: those of Table 13's grids stand in. " + GUESSED,
)
FIGURE20 = Artefact(
    "figure20",
    "Classes of the clients",
    Layout(
        tuple(
            make_panel("partition", f"cnn {data}", alpha, (AVG,), scale=data)
            for data, alphas in ALPHAS.items()
            for alpha in alphas
        ),
        3,
    ),
    seeds=(0,),
)
FIGURES = (
    *(FIGURE1, FIGURE2, FIGURE3, FIGURE4, FIGURE5, FIGURE6, FIGURE7, FIGURE8, FIGURE9, FIGURE10),
    *(FIGURE11, FIGURE12, FIGURE13, FIGURE14, FIGURE15, FIGURE16, FIGURE17, FIGURE18, FIGURE19, FIGURE20),
)
