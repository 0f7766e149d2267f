"""Results on disk: HDF5 in netCDF's manner, so that xarray, Julia and MATLAB read them with every axis named.

    <study>.h5
        attributes    study, settings, provenance (JSON), format
        /<group>/     only these hold data: one dimension scale per axis, variables with long_name and units
        seal          the last line, behind the end of what HDF5 reads: the SHA-256 of every byte before it

The seal is verified before HDF5 sees a byte, because a damaged file can give it wrong numbers. A seal can be forged, so
the structure is verified too, before memory is taken: a file can name other files, or declare more data than it has.
Files are written aside and renamed: whoever reads sees the old one or the new one. This file imports no torch.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
from numpy.typing import NDArray

from training.storage import lease

FORMAT = 2  # of the files; a reader that meets a higher number says so. Files of format 1 have no seal
SEAL = b"\nfl-landscape results, sha256 %s\n"
SEAL_SIZE = len(SEAL % hashlib.sha256().hexdigest().encode())
AT_ONCE = 2**20  # bytes hashed at once
AXES = "DIMENSION_LIST"  # the attribute in which HDF5 keeps the scales of a dataset's axes
WORD = 16  # bytes that a word takes beside its letters, which lie elsewhere in the file
WORDS = 16  # read at once


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
    """Write a sealed file aside, flush it, rename it."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", track_order=True) as file:
        file.attrs["format"] = FORMAT
        file.attrs["study"] = stored.study
        file.attrs["settings"] = json.dumps(stored.settings, sort_keys=True, default=str)
        file.attrs["provenance"] = json.dumps(stored.provenance, sort_keys=True, default=str)
        for name, table in stored.tables.items():
            _write_table(file.create_group(name, track_order=True), table)
    content = buffer.getvalue()
    replace(path, content + seal(content))


def seal(content: bytes) -> bytes:
    """The line that ends a file: the hash of all that comes before it."""
    return SEAL % hashlib.sha256(content).hexdigest().encode()


def replace(path: Path, *content: bytes) -> None:
    """Put a file in the place of another in one step; a full disk leaves the other as it was."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        lease.check(path)
        os.replace(aside, path)
    except lease.LeaseLostError:
        raise
    except OSError as error:
        raise OSError(
            error.errno,
            f"{path} could not be written ({error.strerror}); what was there before is intact, and the same command "
            "goes on from here",
        ) from error
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
    """Read a file whole, if not one byte of it has changed since it was written."""
    try:
        if path.exists() and not path.is_file():
            raise DamagedError("not a file")  # a pipe would be waited for
        with open(path, "rb") as raw:
            _check_seal(raw)
            with h5py.File(raw, "r") as file:
                return _read_file(file, size=raw.seek(0, os.SEEK_END))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file. Has this study been run? landscape analyze makes it") from None
    except DamagedError as error:
        raise DamagedError(f"{path}: {error}") from None
    except Exception as error:  # a forged file makes h5py raise any of a dozen types; they all mean this
        raise DamagedError(f"{path}: not readable as results ({_first_line(error)})") from None


def verify(path: Path) -> str:
    """What is wrong with a file of results, in one line; nothing if it is sound."""
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return ""


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _check_seal(raw: BinaryIO) -> None:
    """Compare the last line with the bytes before it."""
    size = os.fstat(raw.fileno()).st_size - SEAL_SIZE
    digest = hashlib.sha256()
    for done in range(0, size, AT_ONCE):
        digest.update(raw.read(min(AT_ONCE, size - done)))
    raw.seek(max(size, 0))
    found = raw.read()
    if not found.startswith(SEAL.partition(b"%")[0]):
        raise DamagedError("not readable as results: it is cut short, or was made by a version that did not seal them")
    if found != SEAL % digest.hexdigest().encode():
        raise DamagedError("its content does not match the hash that was written with it")


def _read_file(file: h5py.File, size: int) -> Stored:
    found = file.attrs["format"]
    if not isinstance(found, np.integer):
        raise DamagedError(f"not readable as results (format must be a number, got {type(found).__name__})")
    if found > FORMAT:
        raise DamagedError(f"written by a newer version (format {found}); update fl-landscape")
    groups = {name: member(file, name, h5py.Group) for name in file}
    datasets = {group: {name: member(file[group], name, h5py.Dataset) for name in file[group]} for group in groups}
    declared = sum(_declared(dataset) for some in datasets.values() for dataset in some.values())
    if declared > size:
        raise DamagedError(f"declares {declared} bytes of data, but has {size}")
    return Stored(
        study=_text(file.attrs, "study"),
        settings=_json(file.attrs, "settings"),
        provenance=_json(file.attrs, "provenance"),
        tables={name: _read_table(group, datasets[name], size) for name, group in groups.items()},
    )


def member(group: h5py.Group, name: str, kind: type[Any]) -> Any:
    """A group, or a dataset, that lies in this very file.

    kind: h5py.Group or h5py.Dataset, whichever is expected here.
    """
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DamagedError(f"'{name}' is a link to somewhere else; results hold their data themselves")
    found = group[name]
    if not isinstance(found, kind):
        raise DamagedError(f"'{found.name}' is a {type(found).__name__.lower()}, expected a {kind.__name__.lower()}")
    layout = found.id.get_create_plist() if isinstance(found, h5py.Dataset) else None
    if layout is not None and (layout.get_external_count() or layout.get_layout() == h5py.h5d.VIRTUAL):
        raise DamagedError(f"'{found.name}' is stored outside of this file")
    return found


def _declared(dataset: h5py.Dataset) -> int:
    """The bytes that a dataset takes in memory, all of which must be in this file."""
    if dataset.id.get_create_plist().get_layout() not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS):
        raise DamagedError(f"'{dataset.name}' is stored in chunks, expected in one piece")
    if dataset.dtype.kind not in "iuf" and not _holds_words(dataset):
        raise DamagedError(f"'{dataset.name}' holds {dataset.dtype}, expected numbers or words")
    size = int(dataset.size) * (WORD if _holds_words(dataset) else int(dataset.dtype.itemsize))
    if size != dataset.id.get_storage_size():
        raise DamagedError(f"'{dataset.name}' declares {size} bytes, but {dataset.id.get_storage_size()} are stored")
    return size


def _holds_words(dataset: h5py.Dataset) -> bool:
    found = h5py.check_string_dtype(dataset.dtype)
    return found is not None and found.length is None


def _read_words(dataset: h5py.Dataset, most: int) -> NDArray[Any]:
    """Words, some at a time: many of them may name the same letters, and take more memory than the file has bytes."""
    words, letters = np.empty(dataset.shape, dtype=object), 0
    if not dataset.shape:
        return np.asarray(dataset.asstr()[()], dtype=object)
    for row in np.ndindex(dataset.shape[:-1]):
        for first in range(0, dataset.shape[-1], WORDS):
            place = (*row, slice(first, first + WORDS))
            words[place] = dataset.asstr()[place]
            letters += sum(map(len, words[place]))
            if letters > most:
                raise DamagedError(f"'{dataset.name}' has more letters than the file has bytes")
    return words


def _text(attributes: Mapping[str, Any], name: str, default: str | None = None) -> str:
    found = attributes[name] if default is None else attributes.get(name, default)
    if not isinstance(found, str):
        raise DamagedError(f"attribute {name} must be a text, got {type(found).__name__}")
    return found


def _json(attributes: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = json.loads(_text(attributes, name))
    if not isinstance(found, dict):
        raise DamagedError(f"attribute {name} must be a JSON object, got {type(found).__name__}")
    return found


def _read_table(group: h5py.Group, datasets: Mapping[str, h5py.Dataset], size: int) -> Table:
    variables = {}
    for name, dataset in datasets.items():
        _check_axes(dataset)
        dims = (name,) if dataset.is_scale else tuple(_axis(group, dim) for dim in dataset.dims)
        values = _read_words(dataset, size) if _holds_words(dataset) else dataset[()]
        about = _text(dataset.attrs, "long_name", name), _text(dataset.attrs, "units", "1")
        variables[name] = Variable(dims, np.asarray(values), *about)
    attributes = dict(group.attrs)
    for name, value in attributes.items():
        if not isinstance(value, (str, np.integer, np.floating)):
            raise DamagedError(
                f"attribute {name} of '{group.name}' must be a text or a number, got {type(value).__name__}"
            )
    return Table(variables, attributes)


def _check_axes(dataset: h5py.Dataset) -> None:
    """Verify the type of what names the axes: HDF5 takes it for granted, and overwrites memory where it is another."""
    if AXES not in dataset.attrs:
        return
    about = dataset.attrs.get_id(AXES)
    kind = about.get_type()
    lists = isinstance(kind, h5py.h5t.TypeVlenID) and kind.get_super() == h5py.h5t.STD_REF_OBJ
    if not lists or about.shape != (dataset.ndim,):
        raise DamagedError(f"attribute {AXES} of '{dataset.name}' must be a list of scales for every axis")


def _axis(group: h5py.Group, dim: Any) -> str:
    """The name of an axis: that of its one scale, which lies beside the variable."""
    if len(dim) != 1 or not dim[0].is_scale or dim[0].parent != group:
        raise DamagedError(f"an axis in '{group.name}' is not named by one scale of that group")
    return str(dim[0].name.rpartition("/")[2])


def move_aside(path: Path) -> Path:
    """Give a damaged file another name, which no other file has."""
    number = 1
    while (target := path.with_name(f"{path.name}.damaged{number}")).exists():
        number += 1
    os.replace(path, target)
    return target
