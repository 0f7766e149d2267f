"""What the golden run trains and asks: six federations on the digits, and every study with all that it can measure.

The places that know the project's own names are here: RECIPES, CASES, `train_all`, `study_all` and `read_values`. Who
moves or renames something changes these, and RENAMED; golden.json stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from analysis import catalog, runner, store
from analysis.subjects import Limits, Run
from training import config
from training.engine.run import train

BATCHNORM = {"name": "tests.golden.networks:batchnorm_cnn"}
COMMON: dict[str, Any] = {
    "seed": 7,
    "dtype": "float64",
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [5]},
    "partition": {"name": "dirichlet_total", "clients": 6, "alpha": 0.5},
    "local": {"lr": 0.1, "batch_size": 32, "epochs": 1},
    "rounds": {"count": 4, "participants": 3},
    "checkpoints": {"every": 2, "keep_locals": "all", "keep_clients": "all"},
}
RECIPES: dict[str, dict[str, Any]] = {  # run -> tables that take the place of the common ones
    # a vector of each client; momentum, weight decay and clipping of local steps; a rate that decays
    "scaffold": {
        "dtype": "float32",
        "algorithm": {"name": "scaffold"},
        "local": {
            **COMMON["local"],
            "epochs": 2,
            "momentum": 0.5,
            "weight_decay": 1e-3,
            "clip": 5.0,
            "lr_decay": 0.9,
        },
    },
    # vectors of the server; a fixed number of local steps, augmented images, clients of equal weight
    "fedadam": {
        "dtype": "float32",
        "algorithm": {"name": "fedadam", "eta_g": 0.01},
        "local": {"lr": 0.1, "batch_size": 32, "steps": 6},
        "rounds": {**COMMON["rounds"], "aggregation": "uniform"},
        "augment": {"padding": 1, "flip": True},
    },
    # SAM on the clients and at the server, duals of the clients, quantities along the steps and of whole rounds
    "fedgloss": {
        "algorithm": {"name": "fedgloss", "rho_s": 0.15, "rho": 0.15, "beta": 10.0},
        "record": ["gradient_norm", "descent_norm", "update_norm", "perturbed_cosine", "delta_epsilon"],
    },
    # a direction that the server sends, BatchNorm
    "fedvssam": {
        "algorithm": {"name": "fedvssam", "rho": 0.05, "a": 0.5, "gamma": 0.5},
        "model": BATCHNORM,
        "record": ["direction_norm", "perturbation_norm", "server_cosine", "server_gap", "perturbation_gap"],
    },
    # a proximal loss; train and test data pooled, so that every client has test data of its own
    "fedsol": {
        "algorithm": {"name": "fedsol", "rho": 0.2},
        "data": {"name": "digits", "pooled": True},
        "record": ["proximal_cosine", "proximal_norm"],
    },
    # ASAM, SWA and BatchNorm: three global models with statistics of their own
    "fedasam": {
        "algorithm": {"name": "fedasam", "rho": 0.5, "eta": 0.2},
        "model": BATCHNORM,
        "swa": {"start": 0.25, "cycle": 2, "lr_end": 0.02},
    },
}


@dataclass(frozen=True)
class Case:
    """One study of one run, or of several together."""

    study: str
    runs: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)


KINDS = ("sam", "sam_max", "asam", "asam_all", "asam_max", "average", "average_adaptive", "keskar")
ALL_PAIRS = ("run-run", "client-client", "client-global", "round-round")
CORRUPTED = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
CASES: dict[str, Case] = {
    "training of scaffold": Case("training", ["scaffold"], {"targets": (0.1, 0.2, 0.4), "last": 2}),
    "training of fedadam": Case("training", ["fedadam"]),
    "training of fedgloss": Case("training", ["fedgloss"]),
    "training of fedvssam": Case("training", ["fedvssam"]),
    "training of fedsol": Case("training", ["fedsol"]),
    "training of fedasam": Case("training", ["fedasam"], {"targets": (0.1, 0.2, 0.4), "last": 2}),
    "forgetting of all": Case("forgetting", ["fedasam"], {"model": "server"}),
    "forgetting on own tests": Case(
        "forgetting", ["fedsol"], {"split": "train", "client_split": "test", "limit": 60, "clients": 3}
    ),
    "robustness": Case(
        "robustness",
        ["fedasam"],
        {"rounds": "2,4", "corruptions": CORRUPTED, "severities": (1, 4), "limit": 100},
    ),
    "personal with own tests": Case(
        "personal",
        ["fedsol"],
        {
            "ways": ("global", "finetune", "knn", "local", "own", "fedcr"),
            "options": ("epochs=1", "rounds=2"),
            "clients": 4,
        },
    ),
    "personal with drawn tests": Case("personal", ["fedgloss"], {"rounds": "2,4", "ways": ("finetune", "knn")}),
    "features": Case(
        "features", ["fedasam"], {"models": ("final", "server", "mean", "swa"), "count": 60, "perplexity": 10.0}
    ),
    "curvature": Case(
        "curvature",
        ["fedgloss"],
        {"top": 2, "smallest": True, "density": 2, "density_rounds": "2,4", "trace": 5, "limit": 150},
    ),
    "curvature with BatchNorm": Case(
        "curvature", ["fedasam"], {"model": "swa", "rounds": "last", "split": "test", "top": 2, "limit": 100}
    ),
    "curvature in float32": Case("curvature", ["scaffold"], {"rounds": "2,4", "top": 2, "warm": False}),
    "surface, random": Case(
        "surface", ["fedvssam", "fedasam"], {"axes": "random", "steps": 4, "clients": 2, "limit": 80}
    ),
    "surface, shared": Case(
        "surface", ["fedvssam", "fedasam"], {"axes": "shared", "steps": 3, "rounds": "2,4", "limit": 80}
    ),
    "surface, eigen": Case(
        "surface", ["fedgloss", "fedsol"], {"axes": "eigen", "steps": 4, "clients": 1, "limit": 80, "rise": 0.5}
    ),
    "surface, given extent": Case(
        "surface", ["fedadam"], {"axes": "random", "steps": 3, "extent": 0.5, "splits": ("test",), "limit": 80}
    ),
    "sharpness": Case(
        "sharpness",
        ["fedgloss"],
        {"kinds": KINDS, "steps": 3, "restarts": 1, "samples": 4, "clients": 2, "limit": 60},
    ),
    "sharpness over batches": Case(
        "sharpness",
        ["fedasam"],
        {"kinds": ("sam", "asam", "average"), "samples": 3, "m": 20, "clients": 2, "limit": 60},
    ),
    "local_global": Case("local_global", ["fedgloss"], {"top": 2, "rounds": "2,4", "clients": 2, "limit": 50}),
    "local_global with BatchNorm": Case("local_global", ["fedvssam"], {"clients": 2, "limit": 40}),
    "incompatibility and delta_epsilon": Case(
        "incompatibility", ["fedgloss"], {"clients": 4, "steps": 3, "batches": 3, "batch": 16, "limit": 80}
    ),
    "incompatibility and tracking": Case(
        "incompatibility", ["fedvssam"], {"rounds": "2,4", "steps": 2, "batches": 6, "batch": 2}
    ),
    "drift": Case("drift", ["fedsol"], {"rounds": "2,4", "tau": 3.0}),
    "drift from the global model": Case(
        "drift", ["fedvssam"], {"rounds": "2,4", "reference": "global", "tau": 2.0, "limit": 40}
    ),
    "sensitivity": Case("sensitivity", ["fedgloss"], {"rounds": "2,4", "layers": 2}),
    "sensitivity to the global model": Case(
        "sensitivity", ["fedasam"], {"reference": "global", "clients": 2, "limit": 40}
    ),
    "plane through clients": Case(
        "plane", ["fedvssam", "fedasam"], {"models": "clients", "steps": 4, "batchnorm": "recomputed", "limit": 80}
    ),
    "plane through rounds": Case(
        "plane", ["fedasam"], {"models": "rounds", "rounds": "all", "model": "server", "steps": 4, "limit": 80}
    ),
    "plane through runs": Case(
        "plane", ["fedgloss", "fedsol", "scaffold"], {"models": "runs", "steps": 4, "limit": 80}
    ),
    "interpolation": Case(
        "interpolation",
        ["fedvssam", "fedasam"],
        {"pairs": ALL_PAIRS, "steps": 3, "low": -0.5, "high": 1.5, "clients": 2, "limit": 80},
    ),
    "interpolation without BatchNorm": Case("interpolation", ["fedgloss", "fedsol"], {"steps": 5, "limit": 100}),
}
BARE = ("row", "probe", "step", "example", "unit", "refinement")  # axes that may have no coordinates
# Refactoring: "study/group/variable" as it is called now -> as golden.json calls it. A golden.json that is written
# anew has the old names as long as they stand here.
RENAMED: dict[str, str] = {}


def one_thread() -> threadpool_limits:
    """Sums come out the same whatever else the machine has to do."""
    torch.set_num_threads(1)
    return threadpool_limits(1)


def train_all(out: Path) -> dict[str, Path]:
    """Every run's directory, by the name it has in RECIPES."""
    found = {}
    with one_thread():
        for name, tables in RECIPES.items():
            recipe = config.validate({**COMMON, **tables})
            found[name] = train(recipe, out / name, backend="serial")
    return found


def study_all(runs: Mapping[str, Path], out: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """What every case gave: case -> study/group/variable -> values."""
    found = {}
    with one_thread():
        for name, case in CASES.items():
            study = catalog.STUDIES[case.study]
            subjects = [Run(runs[run], limits=Limits(workers=1)) for run in case.runs]
            planned = runner.plan(study, study.settings(**case.settings), subjects, out / name)
            values = read_values(runner.carry_out(planned, say=lambda _: None))
            found[name] = {RENAMED.get(key, key): array for key, array in values.items()}
    return found


def read_values(path: Path) -> dict[str, NDArray[Any]]:
    """The variables of a result on disk by study/group/variable. The only place that knows what results look like.

    Axes without coordinates are left out: a file numbers them from zero.
    """
    stored = store.read(path)
    return {
        f"{stored.study}/{group}/{name}": variable.values
        for group, table in stored.tables.items()
        for name, variable in table.variables.items()
        if not (name in BARE and variable.dims == (name,) and variable.long_name == name)
    }
