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
from tests.golden.groups import SPLIT
from training import config
from training.engine.run import train
from training.recording import OF_ROUNDS, QUANTITIES

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
            "strategies": ("global", "finetune", "knn", "local", "own"),
            "options": ("epochs=1",),
            "clients": 4,
        },
    ),
    "personal with drawn tests": Case("personal", ["fedgloss"], {"rounds": "2,4", "strategies": ("finetune", "knn")}),
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


def _in_group(study: str, group: str, *names: str, now: str = "{}", then: str = "{}") -> dict[str, tuple[str, ...]]:
    """Variables of one former group, by pattern: as they are called now -> as golden.json calls them."""
    return {f"{study}/{now.format(name)}": (f"{study}/{group}/{then.format(name)}",) for name in names}


SHARPNESS = ("value", "standard_error", "sampling_error", "gap", "base", "gradient_norm", "evaluations")
MEANS = ("distance", "update_norm", "update_cosine", "proximal_loss", "endpoint_cosine")
# "study/variable" as it is called now -> "study/group/variable" as golden.json calls it, from when answers had
# groups of tables. A golden.json that is written anew has the old names as long as they stand here.
RENAMED: dict[str, tuple[str, ...]] = {
    **{
        f"curvature/{name}": (f"curvature/spectrum/{name}",)
        for name in (
            "rank",
            "eigenvalue",
            "eigenvalue_standard_error",
            "residual",
            "converged",
            "verified",
            "products",
            "loss",
            "gradient_norm",
            "norm",
            "smallest",
            "smallest_residual",
            "trace",
            "trace_error",
        )
    },
    "curvature/round": ("curvature/spectrum/round",),
    "curvature/node": ("curvature/density/node",),
    "curvature/weight": ("curvature/density/weight",),
    **{
        f"local_global/{name}": (f"local_global/local_models/{name}",)
        for name in (
            "local_eigenvalue",
            "local_standard_error",
            "local_residual",
            "global_eigenvalue",
            "global_standard_error",
            "global_residual",
            "local_loss",
            "global_loss",
            "distance",
        )
    },
    **{
        f"local_global/global_model_{name}": (f"local_global/global_model/global_{name}",)
        for name in ("eigenvalue", "standard_error", "residual", "loss")
    },
    **{
        f"local_global/global_model_on_client_{name}": (f"local_global/global_model/local_{name}",)
        for name in ("eigenvalue", "standard_error", "residual", "loss")
    },
    "local_global/round": ("local_global/global_model/round",),
    "local_global/client": ("local_global/global_model/client",),
    "local_global/rank": ("local_global/global_model/rank", "local_global/local_models/rank"),
    "local_global/examples": ("local_global/global_model/examples",),
    "local_global/population": ("local_global/global_model/population",),
    **{
        f"forgetting/{name}": (f"forgetting/global_model/{name}",)
        for name in (
            "predicted",
            "confusion",
            "correct",
            "total",
            "accuracy",
            "accuracy_all",
            "feature_norm",
            "output_norm",
            "forgotten_class",
            "forgetting",
        )
    },
    **{
        f"forgetting/client_{name}": (f"forgetting/clients/{name}",)
        for name in ("correct", "total", "accuracy", "feature_norm", "output_norm", "forgetting")
    },
    **{
        f"forgetting/local_{name}": (f"forgetting/local_models/{name}",)
        for name in ("correct", "accuracy", "accuracy_all")
    },
    "forgetting/own_accuracy": ("forgetting/local_models/own_accuracy",),
    "forgetting/own_total": ("forgetting/local_models/own_total",),
    "forgetting/forgotten_client": ("forgetting/clients/forgotten_client",),
    "forgetting/round": ("forgetting/global_model/round", "forgetting/clients/round"),
    "forgetting/class": ("forgetting/global_model/class", "forgetting/local_models/class"),
    "forgetting/client": (),  # participants and clients that were asked for are no longer apart
    **{
        f"features/{name}": (f"features/features/{name}",)
        for name in ("model", "round", "axis", "label", "predicted", "tsne", "divergence", "pca", "variance_share")
    },
    "features/feature": ("features/features/feature",),
    "features/example_index": ("features/features/place",),
    **{
        f"robustness/{name}": (f"robustness/robustness/{name}",)
        for name in (
            "round",
            "corruption",
            "severity",
            "clean_accuracy",
            "correct",
            "accuracy",
            "standard_error",
            "relative_drop",
            "mean_by_severity",
            "mean_by_corruption",
            "mean_accuracy",
            "mean_relative_drop",
            "change",
            "extra",
            "departure",
        )
    },
    **{
        f"personal/{name}": (f"personal/personal/{name}",)
        for name in (
            "round",
            "client",
            "before",
            "after",
            "examples",
            "mean",
            "mean_before",
            "spread",
            "standard_error",
            "worst_tenth",
            "left_out",
            "options",
        )
    },
    "personal/strategy": ("personal/personal/way",),
    **{
        f"training/{name}": (f"training/models/{name}",)
        for name in (
            "model",
            "target",
            "rounds_to_target",
            "bytes_to_target",
            "final_accuracy",
            "final_accuracy_spread",
            "final_loss",
            "final_loss_spread",
            "final_count",
            "best_accuracy",
            "best_round",
        )
    },
    "training/step": ("training/recorded/step",),
    **{f"training/{name}": (f"training/recorded/{name}",) for name in (*QUANTITIES, *OF_ROUNDS)},
    **{f"training/{name}_by_step": (f"training/recorded/{name}_by_step",) for name in QUANTITIES},
    **{
        f"training/{name}": (f"training/rounds/{name}",)
        for name in (
            "round",
            "lr",
            "participants",
            "train_loss",
            "norm",
            "update",
            "drift",
            "cosine",
            "gradients",
            "seconds",
            *(f"{model}{name}" for model in ("", "mean_", "swa_") for name in ("accuracy", "test_loss")),
            *(f"bytes_{way}{end}" for way in ("down", "up") for end in ("", "_so_far")),
        )
    },
    **_in_group("sharpness", "local_models", *SHARPNESS, now="local_{}", then="local_{}"),
    **_in_group("sharpness", "local_models", *SHARPNESS, now="global_{}", then="global_{}"),
    **_in_group("sharpness", "global_model", *SHARPNESS, now="global_model_{}", then="global_{}"),
    **_in_group("sharpness", "global_model", *SHARPNESS, now="global_model_on_client_{}", then="local_{}"),
    **_in_group("sharpness", "global_model", "round"),
    "sharpness/kind": ("sharpness/global_model/kind", "sharpness/local_models/kind"),
    "sharpness/radius": ("sharpness/global_model/radius", "sharpness/local_models/radius"),
    "sharpness/client": (),
    **_in_group("drift", "rounds", "round", "norm", "moved_global"),
    **_in_group("drift", "rounds", *MEANS, "pair_distance", "pair_cosine", now="mean_{}"),
    **_in_group("drift", "rounds", *MEANS, now="mean_{}_error", then="{}_error"),
    **_in_group("drift", "clients", *MEANS, "layer", "layer_distance", "model_norm"),
    **_in_group("drift", "clients", "proximal_error", "proximal_gradient_norm", "half_square"),
    **_in_group("drift", "pairs", "first", "second", "pair_distance", "pair_cosine"),
    "drift/client": (),
    **_in_group("sensitivity", "layers", "layer", "entries", "measure", "loss", "loss_error", "gradient_norm"),
    **_in_group("sensitivity", "layers", "sam_rise", "global_sensitivity", "moved", "chosen", "adaptive", "rise"),
    **_in_group("sensitivity", "layers", "removal", "first_order", "global_first_order", "layer_gradient_norm"),
    "sensitivity/round": (),
    "sensitivity/client": (),
    **{
        f"incompatibility/client_{name}": (f"incompatibility/clients/{name}",)
        for name in (
            "loss",
            "global_rise",
            "gradient_norm",
            "heterogeneity",
            "batch_variance",
            "batch_variance_error",
            "friendly_batches",
        )
    },
    **{
        f"incompatibility/{name}": (f"incompatibility/clients/{name}",)
        for name in (
            "client",
            "other",
            "share",
            "examples",
            "other_rise",
            "rise",
            "rise_error",
            "gradient_cosine",
            "perturbation_distance",
            "perturbation_cosine",
            "maximised",
            "maximised_error",
            "batches",
            "friendly_batches_linear",
            "other_batch_rise",
            "gradient_error",
        )
    },
    **{
        f"incompatibility/{name}": (f"incompatibility/rounds/{name}",)
        for name in (
            "radius",
            "loss",
            "gradient_norm",
            "global_rise",
            "friendly_clients",
            "friendly_batches",
            "tracking_error",
            "tracking_noise",
            "tracking_cosine",
            "delta_epsilon",
            *(
                f"{kind}_{name}{end}"
                for kind in ("rise", "maximised")
                for name in ("mean", "dispersion", "dispersion_noise", "dispersion_corrected")
                for end in ("", "_weighted")
            ),
            *(f"{kind}_mean{end}_standard_error" for kind in ("rise", "maximised") for end in ("", "_weighted")),
            *(f"heterogeneity{end}" for end in ("", "_weighted", "_standard_error", "_weighted_standard_error")),
            *(f"{name}{end}" for name in ("heterogeneity_noise", "batch_variance") for end in ("", "_weighted")),
        )
    },
    "incompatibility/round": ("incompatibility/rounds/round", "incompatibility/clients/round"),
}
# names of rows and coordinates of groups that answers no longer have: they repeat what coordinates say
GONE = {
    "forgetting/clients/client",
    "forgetting/local_models/round_of",
    "forgetting/local_models/client",
    "training/recorded/round",
    "curvature/density/round",
    "local_global/local_models/round_of",
    "local_global/local_models/client",
    "local_global/local_models/examples",
    "local_global/local_models/population",
    "sharpness/global_model/client",
    "sharpness/local_models/client",
    "sharpness/local_models/round_of",
    "drift/clients/client",
    "drift/clients/round_of",
    "drift/pairs/round_of",
    "sensitivity/layers/client",
    "sensitivity/layers/round_of",
}


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
            found[name] = {old: array for key, array in values.items() for old in RENAMED.get(key, (key,))}
    return found


def read_values(path: Path) -> dict[str, NDArray[Any]]:
    """The variables of an answer by study/variable. The only place that knows what answers look like."""
    answer = store.read(path)
    if answer.study in SPLIT:
        return {f"{answer.study}/{key}": values for key, values in SPLIT[answer.study](answer.data).items()}
    return {f"{answer.study}/{name}": variable.values for name, variable in answer.data.variables.items()}
