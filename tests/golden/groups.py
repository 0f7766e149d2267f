"""Answers that hold in one Dataset what golden.json knows as several tables, taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import xarray as xr
from numpy.typing import NDArray

Values = dict[str, NDArray[np.generic]]  # group/variable -> values
OLD = {"model_run": "run", "model_round": "round_of", "model_client": "client"}


def split_surface(data: xr.Dataset) -> Values:
    """Global models, and participants' models, whose data had names of their own."""
    local = data["model_client"].values >= 0
    found: Values = {}
    for group, chosen in (("global_models", ~local), ("local_models", local)):
        table = data.isel(model=chosen)
        table = table.isel(split=(table["examples"] > 0).any("model").values)
        if not chosen.any():
            continue
        found |= {f"{group}/{OLD.get(name, name)}": table[name].values for name in _names(table, "model")}
    found.pop("global_models/client")
    if "local_models/split" in found:
        own = found.pop("local_models/split")
        found["local_models/data"] = np.where(own == "train", "everyone", own)
    return found


def split_plane(data: xr.Dataset) -> Values:
    """One table for each plane, with models by number and label."""
    found: Values = {}
    for number in data["plane"].values.tolist():
        table = data.sel(plane=number)
        gone = ("plane", "x_index", "y_index", "model", "batchnorm", "model_run", "model_round", "model_client")
        found |= {f"plane_{number}/{name}": table[name].values for name in _names(table, *gone)}
        found[f"plane_{number}/model"] = np.arange(table.sizes["model"])
        found[f"plane_{number}/label"] = _label(table, "model")
    return found


def split_interpolation(data: xr.Dataset) -> Values:
    """One row for each pair and treatment of norm layers, with labels of both ends."""
    ends = [f"{end}_{name}" for end in ("start", "end") for name in ("run", "round", "client")]
    found: Values = {f"lines/{name}": data[name].values for name in _names(data, "pair", "distance", *ends)}
    found["lines/distance"] = data["distance"].values.repeat(data.sizes["batchnorm"])
    return found | {f"lines/{end}": _label(data, end) for end in ("start", "end")}


def _names(data: xr.Dataset, *without: str) -> Iterator[str]:
    return (str(name) for name in data.variables if name not in without)


def _label(data: xr.Dataset, what: str) -> NDArray[np.str_]:
    columns = (data[f"{what}_{name}"].values.tolist() for name in ("run", "round", "client"))
    texts = [
        f"{run} round {round}" + (f" client {client}" if client >= 0 else "")
        for run, round, client in zip(*columns, strict=True)
    ]
    return np.asarray(texts)


SPLIT: dict[str, Callable[[xr.Dataset], Values]] = {
    "surface": split_surface,
    "plane": split_plane,
    "interpolation": split_interpolation,
}
