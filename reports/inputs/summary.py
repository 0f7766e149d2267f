"""Numbers of runs: how well they ended, what their answers say, and means over seeds. This file imports no torch.

The numbers of an answer are called study.variable, of the last round that was measured; those of a question other than
the default one are called study[question].variable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from analysis import store
from analysis.store import Answer
from training.storage.metrics import PREFIX, find_score
from training.storage.verified_files import Json

Row = Json
Cell = TypeVar("Cell")
SKEWS = ("alpha", "beta", "shards_per_client", "classes_per_client")  # how partitions call their skew
UNTOLD = {"seed", "data.root", "data.download"}  # not what makes runs differ
UNTOLD_TABLES = ("checkpoints.", "evaluation.")
ERROR = "_standard_error"  # how studies name what a number from a subset of the data may be off by
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet take a text for a formula


def differing(settings: Sequence[Row]) -> list[str]:
    """Find the dotted keys in which runs differ, except for the seed and book-keeping."""
    keys = dict.fromkeys(key for one in settings for key in one)
    return [
        key
        for key in keys
        if key not in UNTOLD
        and not key.startswith(UNTOLD_TABLES)
        and len({json.dumps(one.get(key), sort_keys=True, default=str) for one in settings if one}) > 1
    ]


def finals(records: Sequence[Row], last: int) -> Row:
    """Score of the last evaluated rounds: mean, sample standard deviation over rounds, for each global model.

    The score is the accuracy, final_accuracy, or where pixels are classified the mean IoU, final_miou.
    """
    row: Row = {"rounds": len(records)}
    score = find_score(records)
    for name in PREFIX.values():
        known = [record[f"{name}{score}"] for record in records if record.get(f"{name}{score}") is not None][-last:]
        if known:
            row[f"{name}final_{score}"] = float(np.mean(known))
            row[f"{name}final_{score}_over_rounds"] = float(np.std(known, ddof=1)) if len(known) > 1 else math.nan
    return row


def numbers(answer: Answer) -> Row:
    """The numbers of an answer: those that papers name, then every other as study.variable."""
    row: Row = NAMED[answer.study](answer.data) if answer.study in NAMED else {}
    prefix = answer.study if answer.question == store.DEFAULT else f"{answer.study}[{answer.question}]"
    for key, value in _last_numbers(answer.data):
        row[f"{prefix}.{key}"] = value
    return row


def _last_numbers(data: xr.Dataset) -> Iterator[tuple[str, float]]:
    """Single numbers of a Dataset: of the last round that has any, means over clients, one per label of an axis."""
    for name, found in data.data_vars.items():
        if found.dtype.kind not in "fiu" or not found.size or (found.dtype.kind != "f" and "round" not in found.dims):
            continue
        values = _last_round(found)
        if "client" in values.dims and values.dtype.kind == "f":
            values = values.mean("client")
        if not values.dims:
            yield str(name), float(values)
        elif len(values.dims) == 1 and values[values.dims[0]].dtype.kind in "OUS":
            for label, value in zip(values[values.dims[0]].values, values.values, strict=True):
                yield f"{name}[{label}]", float(value)


def _last_round(values: xr.DataArray) -> xr.DataArray:
    """The values of the last round that has any."""
    if "round" not in values.dims:
        return values
    known = values.notnull().any([dim for dim in values.dims if dim != "round"]).values
    return values.isel(round=int(np.flatnonzero(known)[-1]) if known.any() else -1)


def mean_known(values: NDArray[np.number]) -> NDArray[np.float64]:
    """Mean over the first axis without NaN entries; NaN where all are."""
    values = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(values)
    total, count = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _curvature(data: xr.Dataset) -> Row:
    """lambda_1 of the last round, and lambda_1 / lambda_5 where five were found."""
    last = data.isel(round=-1)
    values = last["eigenvalue"].values
    row: Row = {"lambda_1": float(values[0]), "lambda_1_residual": float(last["residual"].values[0])}
    if f"eigenvalue{ERROR}" in last:
        row[f"lambda_1{ERROR}"] = float(last[f"eigenvalue{ERROR}"].values[0])
    if "published_eigenvalue" in last:  # by the papers' 20 power iterations: another number, under a name of its own
        row["lambda_1_published"] = float(last["published_eigenvalue"].values[0])
        row["lambda_1_published_residual"] = float(last["published_residual"].values[0])
    if len(values) >= 5:
        row["lambda_1_over_lambda_5"] = float(values[0] / values[4]) if values[4] else math.nan
    return row


def _local_global(data: xr.Dataset) -> Row:
    """lambda_1 of participants' models on their own data and on everyone's, means over the last round.

    Of the global model: on everyone's data.
    """
    last = data.isel(round=-1, rank=0)
    row: Row = {"global_model_lambda_1": float(last["global_model_eigenvalue"])}
    if "local_eigenvalue" in last:
        for name in ("local", "global"):
            row[f"{name}_lambda_1"] = float(mean_known(last[f"{name}_eigenvalue"].values))
            if f"{name}{ERROR}" in last:
                row[f"{name}_lambda_1{ERROR}"] = _of_mean(last[f"{name}{ERROR}"].values, independent=name == "local")
    return row


def _of_mean(errors: NDArray[np.float64], *, independent: bool) -> float:
    """Standard error of a mean from those of its members; at most that where they come from the same examples."""
    known = errors[np.isfinite(errors)]
    if not len(known):
        return math.nan
    size = float(np.sqrt(np.mean(np.square(known))))
    return size / math.sqrt(len(known)) if independent else size


def _interpolation(data: xr.Dataset) -> Row:
    """Barriers of the loss above the straight chord, means over the pairs of each kind, one column per kind and split.

    Of several treatments of norm layers the first counts: as the models are stored.
    """
    kinds = data["kind"].values
    heights = data["loss_barrier"].sel(definition="linear").isel(batchnorm=0)
    row: Row = {}
    for kind in dict.fromkeys(kinds.tolist()):
        for split in data["split"].values:
            row[f"{split}_barrier[{kind}]"] = float(mean_known(heights.sel(split=split).values[kinds == kind]))
    return row


def _incompatibility(data: xr.Dataset) -> Row:
    """Variance of R_k over clients without the noise of sub-samples (FedVSSAM), mean R_k, and data heterogeneity."""
    names = {
        "incompatibility": "rise_dispersion_corrected",
        "mean_rise": "rise_mean",
        "heterogeneity": "heterogeneity",
    }
    names |= {f"{name}{ERROR}": f"{variable}{ERROR}" for name, variable in names.items()}
    return {name: float(data[variable].values[-1]) for name, variable in names.items() if variable in data}


NAMED: dict[str, Callable[[xr.Dataset], Row]] = {
    "curvature": _curvature,
    "incompatibility": _incompatibility,
    "interpolation": _interpolation,
    "local_global": _local_global,
}


def group(rows: Sequence[Row], by: Sequence[str]) -> list[Row]:
    """Mean and spread of every number over the rows that agree in `by`, usually over seeds.

    column: mean. column_spread: sample standard deviation (n - 1), NaN for one row. column_n: how many had it.
    rows: how many agree. seeds: different ones among them; fewer than rows means that something else differs too.
    """
    for key in by:
        if rows and not any(key in row for row in rows):
            raise ValueError(
                f"by: no row has '{key}'. Known: {', '.join(dict.fromkeys(k for row in rows for k in row))}"
            )
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(json.dumps([row.get(key) for key in by], default=str), []).append(row)
    columns = [
        key
        for key in dict.fromkeys(key for row in rows for key in row)
        if key not in {*by, "seed"} and all(_number(row.get(key)) or row.get(key) is None for row in rows)
    ]
    found = []
    for members in groups.values():
        seeds = {json.dumps(row.get("seed")) for row in members}
        result: Row = {**{key: members[0].get(key) for key in by}, "rows": len(members), "seeds": len(seeds)}
        for key in columns:
            values = [float(row[key]) for row in members if row.get(key) is not None and not math.isnan(row[key])]
            result[key] = float(np.mean(values)) if values else math.nan
            result[f"{key}_spread"] = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
            result[f"{key}_n"] = len(values)
        found.append(result)
    return found


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def escape_formula(value: Cell) -> Cell | str:
    """A value for a CSV cell: a text that a spreadsheet would run as a formula gets a quote before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value
