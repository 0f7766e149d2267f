"""The formats that are read, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fuzz.cases import Format
from tests.fuzz.formats import archives, data, metrics, recipes, results, sealed, tensors

FORMATS: dict[str, Callable[[Path], Format]] = {
    "toml": recipes.Recipes,
    "json": sealed.Sealed,
    "safetensors": tensors.Tensors,
    "npz": archives.Archives,
    "hdf5": results.Results,
    "metrics": metrics.Metrics,
    "data": data.Published,
}
