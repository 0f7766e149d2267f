"""Results on disk: HDF5 in netCDF's manner, so that xarray, Julia and MATLAB read them with every axis named.

    <study>.h5
        attributes    study, settings, provenance (JSON), format
        /<group>/     only these hold data: one dimension scale per axis, variables with long_name and units

Files are written aside and renamed: whoever reads sees the old one or the new one. This file imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

FORMAT = 1  # of the files; a reader that meets a higher number says so


class DamagedError(ValueError):
    """A file that is not what it should be. It is never overwritten: it is moved aside, and this says so."""


@dataclass(frozen=True, eq=False)
class Variable:
    """An array with named axes."""

    dims: tuple[str, ...]
    values: NDArray[Any]
    long_name: str
    units: str = "1"

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        if values.ndim != len(self.dims):
            raise ValueError(f"{self.long_name}: {len(self.dims)} axes are named {self.dims}, got shape {values.shape}")
        object.__setattr__(self, "values", values)


@dataclass(frozen=True, eq=False)
class Table:
    """Variables that share axes; a variable named like its only axis holds that axis' coordinates."""

    variables: dict[str, Variable]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, variable in self.variables.items():
            for dim, size in zip(variable.dims, variable.values.shape, strict=True):
                if sizes.setdefault(dim, size) != size:
                    raise ValueError(f"{name}: axis {dim} has {size} entries here and {sizes[dim]} elsewhere")

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.variables[name].values


@dataclass(frozen=True, eq=False)
class Stored:
    """What a file holds."""

    study: str
    settings: dict[str, Any]
    provenance: dict[str, Any]
    tables: dict[str, Table]

    @property
    def digest(self) -> str:
        """Names the question: the study, its settings and what it was asked of. Not the answer."""
        return digest_of(self.study, self.settings, self.provenance.get("inputs"))


def digest_of(study: str, settings: Mapping[str, Any], inputs: Any) -> str:
    """A fingerprint of a question: same study, same settings, same checkpoints and data."""
    text = json.dumps([FORMAT, study, settings, inputs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def write(path: Path, stored: Stored) -> None:
    """Write a file aside, flush it, rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with h5py.File(aside, "w", track_order=True) as file:
            file.attrs["format"] = FORMAT
            file.attrs["study"] = stored.study
            file.attrs["settings"] = json.dumps(stored.settings, sort_keys=True, default=str)
            file.attrs["provenance"] = json.dumps(stored.provenance, sort_keys=True, default=str)
            for name, table in stored.tables.items():
                _write_table(file.create_group(name, track_order=True), table)
        with open(aside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _write_table(group: h5py.Group, table: Table) -> None:
    for key, value in table.attributes.items():
        group.attrs[key] = value if isinstance(value, (str, int, float, np.generic)) else json.dumps(value, default=str)
    sizes = {
        dim: size
        for variable in table.variables.values()
        for dim, size in zip(variable.dims, variable.values.shape, strict=True)
    }
    for dim, size in sizes.items():
        given = table.variables.get(dim)
        coordinates = given.values if given is not None and given.dims == (dim,) else np.arange(size)
        scale = _dataset(group, dim, coordinates)
        scale.make_scale(dim)
        scale.attrs["long_name"] = given.long_name if given is not None else dim
        scale.attrs["units"] = given.units if given is not None else "1"
    for name, variable in table.variables.items():
        if name in sizes:
            continue
        dataset = _dataset(group, name, variable.values)
        dataset.attrs["long_name"], dataset.attrs["units"] = variable.long_name, variable.units
        for axis, dim in enumerate(variable.dims):
            dataset.dims[axis].attach_scale(group[dim])


def _dataset(group: h5py.Group, name: str, values: NDArray[Any]) -> h5py.Dataset:
    if values.dtype.kind in "US" or values.dtype == object:
        return group.create_dataset(name, data=values.astype(object), dtype=h5py.string_dtype())
    return group.create_dataset(name, data=values.astype(np.int8) if values.dtype == bool else values)


def read(path: Path) -> Stored:
    """Read a file whole."""
    try:
        with h5py.File(path, "r") as file:
            found = int(file.attrs["format"])
            if found > FORMAT:
                raise DamagedError(f"{path}: written by a newer version (format {found}); update fl-landscape")
            return Stored(
                study=str(file.attrs["study"]),
                settings=json.loads(file.attrs["settings"]),
                provenance=json.loads(file.attrs["provenance"]),
                tables={name: _read_table(file[name]) for name in file},
            )
    except DamagedError:
        raise
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file. Has this study been run? landscape analyze makes it") from None
    except (OSError, KeyError, ValueError, RuntimeError, TypeError) as error:
        raise DamagedError(f"{path}: not readable as results ({error})") from None


def _read_table(group: h5py.Group) -> Table:
    variables = {}
    for name, dataset in group.items():
        dims = (name,) if dataset.is_scale else tuple(dim[0].name.rpartition("/")[2] for dim in dataset.dims)
        values = dataset.asstr()[()] if h5py.check_string_dtype(dataset.dtype) else dataset[()]
        about = dataset.attrs.get("long_name", name), dataset.attrs.get("units", "1")
        variables[name] = Variable(dims, np.asarray(values), *about)
    return Table(variables, dict(group.attrs))


def move_aside(path: Path) -> Path:
    """Give a damaged file another name, which no other file has."""
    number = 1
    while (target := path.with_name(f"{path.name}.damaged{number}")).exists():
        number += 1
    os.replace(path, target)
    return target
