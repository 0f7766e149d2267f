"""One number per run: what scatter plots, figures over settings and tables have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from analysis import store
from analysis.store import Answer
from reports.inputs import summary
from reports.inputs.personal import GLOBAL
from reports.inputs.reading import read_provenance
from reports.inputs.recipes import find_table, find_whole
from reports.inputs.runs import Run
from reports.inputs.subsets import Subset, find_subset
from training.storage.metrics import PREFIX

NEVER = math.nan  # rounds and bytes to a target that was not reached
_FOUND: WeakKeyDictionary[Answer, summary.Row] = WeakKeyDictionary()  # the numbers of answers that were asked for


@dataclass(frozen=True)
class Measure:
    """A number that is known for each run: what it is called, with its units, and which direction is better."""

    name: str
    label: str
    better: str  # "higher" or "lower"
    find: Callable[[Run], float] = field(compare=False)  # NaN where it is not known
    decimals: int | None = None  # as many as its size asks for by default
    study: str = ""  # that measured it; none for metrics
    error: Callable[[Run], float] = field(compare=False, default=lambda run: math.nan)  # standard error, a subset's
    examples: Callable[[Run], Subset] = field(compare=False, default=lambda run: Subset())  # what it was measured on


def find_final_accuracy(run: Run, model: str = "final") -> float:
    """Find the score of a global model in per cent: the mean over the last rounds, as many as the recipe says.

    The score is the accuracy, or where pixels are classified the mean IoU.

    model: "server", "mean", "swa"; or "final", the SWA model where there is one and else the server's.
    """
    last = find_whole(find_table(run.settings, "evaluation"), "last", 10)
    found = summary.finals(run.metrics, last)
    names = [PREFIX["swa"], PREFIX["server"]] if model == "final" else [PREFIX[model]]
    keys = [f"{name}final_{run.score}" for name in names]
    return next((100.0 * found[key] for key in keys if key in found), math.nan)


def find_final_metric(run: Run, metric: str) -> float:
    """Find a metric in per cent, the mean over the last rounds: of the SWA model where there is one.

    metric: as metrics.jsonl names it, "miou_unseen".
    """
    last = find_whole(find_table(run.settings, "evaluation"), "last", 10)
    for name in (PREFIX["swa"], PREFIX["server"]):
        values = run.series(f"{name}{metric}")[1][-last:]
        if len(values):
            return 100.0 * float(values.mean())
    return math.nan


def find_flops(run: Run) -> float:
    """Find the operations of a local step in units of FedAvg's; NaN for a run that did not count them."""
    flops = read_provenance(run.path).get("flops")
    ratio = flops.get("ratio") if isinstance(flops, dict) else None
    return float(ratio) if isinstance(ratio, (int, float)) else math.nan


def _find_numbers(answer: Answer) -> summary.Row:
    """All numbers of an answer, found once: every cell of every table asks for one of them."""
    if answer not in _FOUND:
        _FOUND[answer] = summary.numbers(replace(answer, question=store.DEFAULT))
    return _FOUND[answer]


def make_finder(study: str, key: str, factor: float = 1.0) -> Callable[[Run], float]:
    """Make a function that finds a number of a study in a run, of any question; NaN where it is missing.

    key: the name that reports.inputs.summary gives the number.
    factor: what it is multiplied by.
    """

    def find(run: Run) -> float:
        answer = run.answer(study)
        if answer is None:
            return math.nan
        try:
            value = _find_numbers(answer).get(key)
            return math.nan if value is None else factor * float(value)
        except (KeyError, IndexError, TypeError, ValueError):  # another version has written other variables
            return math.nan

    return find


def make_measure(
    name: str,
    label: str,
    better: str,
    key: str,
    *,
    study: str,
    each: bool = False,
    error: str | None = None,
    factor: float = 1.0,
    decimals: int | None = None,
) -> Measure:
    """A number of a study with its standard error and the examples that it was measured on, where these are on record.

    key, error: as reports.inputs.summary names the number and its standard error.
    each: it was measured on the examples of single clients.
    """
    return Measure(
        name,
        label,
        better,
        make_finder(study, key, factor),
        decimals,
        study,
        make_finder(study, error or f"{key}{summary.ERROR}", factor),
        lambda run: find_subset(run.answer(study), each=each),
    )


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("accuracy", "test accuracy (%)", "higher", find_final_accuracy, 1),
        Measure("flops", "FLOPs of a local step (FedAvg: 1)", "lower", find_flops, 2),
        make_measure("lambda_1", "λ₁ of the global model", "lower", "lambda_1", study="curvature"),
        make_measure(
            "lambda_1_published",
            "λ₁ of the global model, 20 power iterations",
            "lower",
            "lambda_1_published",
            study="curvature",
        ),
        make_measure(
            "ratio",
            "λ₁/λ₅ of the global model",
            "lower",
            "lambda_1_over_lambda_5",
            study="curvature",
            decimals=2,
        ),
        make_measure("trace", "trace of the Hessian", "lower", "curvature.trace", study="curvature"),
        make_measure(
            "local",
            "λ₁ of local models, own data",
            "lower",
            "local_lambda_1",
            study="local_global",
            each=True,
        ),
        make_measure(
            "everyone",
            "λ₁ of local models, everyone's data",
            "lower",
            "global_lambda_1",
            study="local_global",
        ),
        make_measure(
            "sam",
            "SAM sharpness of the global model",
            "lower",
            "sharpness.global_model_value[sam]",
            study="sharpness",
            error="sharpness.global_model_standard_error[sam]",
        ),
        make_measure(
            "incompatibility",
            "flatness incompatibility",
            "lower",
            "incompatibility",
            study="incompatibility",
        ),
        make_measure(
            "robust",
            "accuracy under corruptions (%)",
            "higher",
            "robustness.mean_accuracy",
            study="robustness",
            factor=100.0,
            decimals=1,
        ),
        make_measure(
            "forgetting",
            "forgetting of classes (points)",
            "lower",
            "forgetting.forgetting",
            study="forgetting",
            factor=100.0,
            decimals=1,
        ),
    )
}


def list_personal_scores(run: Run, strategy: str | None) -> NDArray[np.float64]:
    """List the accuracy in per cent of each client that was tested.

    strategy: that made the clients' models; None: of the global model.
    """
    found = [one for one in run.personal if strategy in (None, one.name)]
    if not found:
        return np.empty(0)
    values = found[0].before if strategy is None else found[0].after
    return 100.0 * values[np.isfinite(values)]


def list_personal_strategies(runs: Sequence[Run]) -> list[str]:
    """List the personalisation strategies that were measured, without the one that keeps the global model."""
    return list(dict.fromkeys(one.name for run in runs for one in run.personal if one.strategy != GLOBAL))


def list_targets(runs: Sequence[Run]) -> list[float]:
    """List the target accuracies of the study `training`, as fractions."""
    found = [run.measured("training") for run in runs]
    return sorted({float(one) for data in found if data is not None and "target" in data for one in data["target"]})


def find_target_cost(run: Run, target: float) -> tuple[float, float]:
    """Find the rounds and bytes until the server's model or its SWA average reached a target; NaN if never."""
    data = run.measured("training")
    if data is None or "rounds_to_target" not in data or not np.isclose(data["target"], target).any():
        return NEVER, NEVER
    here = data.sel(target=target, method="nearest").isel(model=data["model"].isin(["server", "swa"]))
    return float(here["rounds_to_target"].min()), float(here["bytes_to_target"].min())


def count_bytes_per_round(run: Run) -> float:
    """Count the bytes sent to and by all participants, mean over rounds."""
    sent = [(record.get("bytes_down"), record.get("bytes_up")) for record in run.metrics]
    known = [down + up for down, up in sent if down is not None and up is not None]
    return float(np.mean(known)) if known else math.nan


def count_gradients_per_round(run: Run) -> float:
    """Count the gradient evaluations of all participants, mean over rounds."""
    values = run.series("gradients")[1]
    return float(values.mean()) if len(values) else math.nan


def count_classes(run: Run) -> float:
    """Count the classes of which a client has examples, mean over clients."""
    return math.nan if run.class_counts is None else float((run.class_counts > 0).sum(axis=1).mean())


def find_last_participants(data: xr.Dataset, name: str) -> xr.Dataset:
    """Select the last round with participants, and of the clients only those who took part.

    data: an answer with dimensions round and client.
    name: a variable that is known of everyone who took part.
    """
    took_part = data[name].notnull()
    took_part = took_part.any([dim for dim in took_part.dims if dim not in ("round", "client")])
    rounds = np.flatnonzero(took_part.any("client"))
    last = int(rounds[-1]) if len(rounds) else -1
    return data.isel(round=last, client=np.flatnonzero(took_part.isel(round=last)))
