"""One number per run: what scatter plots, figures over settings and tables have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis import summary
from analysis.store import Table
from analysis.summary import PREFIX
from reports.runs import Run

NEVER = math.nan  # rounds and bytes to a target that was not reached


@dataclass(frozen=True)
class Measure:
    """What is measured, in words with its units, and which end of it is better."""

    name: str
    label: str
    better: str  # "higher" or "lower"
    find: Callable[[Run], float] = field(compare=False)  # NaN where it is not known
    decimals: int | None = None  # as many as its size asks for by default


def final_accuracy(run: Run, model: str = "final") -> float:
    """Per cent: mean over the last evaluated rounds, as many as the recipe says, of a global model.

    model: server, mean, swa, or as studies call it final: the SWA model where there is one, the server's otherwise.
    """
    last = int(run.settings.get("evaluation", {}).get("last", 10))
    found = summary.finals(run.metrics, last)
    names = [PREFIX["swa"], PREFIX["server"]] if model == "final" else [PREFIX[model]]
    return next(
        (100.0 * found[f"{name}final_accuracy"] for name in names if f"{name}final_accuracy" in found), math.nan
    )


def number(study: str, key: str, factor: float = 1.0) -> Callable[[Run], float]:
    """A number of a study by the name that analysis.summary gives it."""

    def find(run: Run) -> float:
        stored = run.results.get(study)
        if stored is None:
            return math.nan
        try:
            value = summary.numbers(stored).get(key)
        except (KeyError, IndexError):  # a table or a round that another version did not write
            return math.nan
        return math.nan if value is None else factor * float(value)

    return find


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("accuracy", "test accuracy (%)", "higher", final_accuracy, 1),
        Measure("lambda_1", "λ₁ of the global model", "lower", number("curvature", "lambda_1")),
        Measure("ratio", "λ₁/λ₅ of the global model", "lower", number("curvature", "lambda_1_over_lambda_5"), 2),
        Measure("trace", "trace of the Hessian", "lower", number("curvature", "curvature.spectrum.trace")),
        Measure("local", "λ₁ of local models, own data", "lower", number("local_global", "local_lambda_1")),
        Measure("everyone", "λ₁ of local models, everyone's data", "lower", number("local_global", "global_lambda_1")),
        Measure(
            "sam",
            "SAM sharpness of the global model",
            "lower",
            number("sharpness", "sharpness.global_model.global_value[sam]"),
        ),
        Measure("incompatibility", "flatness incompatibility", "lower", number("incompatibility", "incompatibility")),
        Measure(
            "robust",
            "accuracy under corruptions (%)",
            "higher",
            number("robustness", "robustness.robustness.mean_accuracy", 100.0),
            1,
        ),
        Measure(
            "forgetting",
            "forgetting of classes (points)",
            "lower",
            number("forgetting", "forgetting.global_model.forgetting", 100.0),
            1,
        ),
    )
}


def personal_accuracy(way: str | None) -> Callable[[Run], float]:
    """Per cent, mean over clients: of models made for them in this way, of the global model for None."""

    def find(run: Run) -> float:
        table = run.table("personal", "personal")
        ways = [] if table is None else [str(one) for one in table["way"]]
        if table is None or not ways or way not in (None, *ways):
            return math.nan
        values = table["mean_before"][0] if way is None else table["mean"][ways.index(way)]
        return 100.0 * float(values[-1])

    return find


def targets(runs: Sequence[Run]) -> list[float]:
    """Accuracies to reach that were looked at, as fractions."""
    tables = [run.table("training", "models") for run in runs]
    return sorted({float(target) for table in tables if table is not None for target in table["target"]})


def to_target(run: Run, target: float) -> tuple[float, float]:
    """Rounds and bytes until the server's model or its SWA average first had this accuracy; NaN: never, or unknown."""
    table = run.table("training", "models")
    found: Any = [] if table is None else np.flatnonzero(np.isclose(table["target"], target))
    if table is None or not len(found):
        return NEVER, NEVER
    rounds, sent = (_first(table, name, int(found[0])) for name in ("rounds_to_target", "bytes_to_target"))
    return rounds, sent


def _first(table: Table, name: str, target: int) -> float:
    rows = [place for place, model in enumerate(table["model"]) if model in ("server", "swa")]
    values: Any = table[name][rows, target]
    known = values[np.isfinite(values)]
    return float(known.min()) if len(known) else NEVER


def bytes_per_round(run: Run) -> float:
    """Sent to and by all participants, mean over rounds."""
    known = [record["bytes_down"] + record["bytes_up"] for record in run.metrics if "bytes_up" in record]
    return float(np.mean(known)) if known else math.nan
