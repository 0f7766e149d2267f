"""Answers on disk: one netCDF-4 (HDF5) file for each question, every axis named. This file imports no torch.

    analysis/<study>/<question>.h5
        attributes    format, study, question, settings and provenance (JSON)
        variables     of one xarray Dataset, in the root group, each with long_name and units
        seal          the last line, behind the end of what HDF5 reads: the SHA-256 of every byte before it

`xarray.open_dataset` reads such a file. `read` also verifies the seal before HDF5 sees a byte, because a damaged file
can give wrong numbers, and then the structure (`hdf5_checks`), because a seal can be forged.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import h5py
import numpy as np
import xarray as xr

from training.storage.atomic_files import DamagedError, write_atomically
from training.storage.hdf5_checks import INTERNAL, check_file, is_bare_dimension
from training.storage.verified_files import Json

FORMAT = 3  # of the files; a reader that meets a higher number says so. Before 3, a file held groups of tables
SEAL = b"\nfl-landscape results, sha256 %s\n"
SEAL_SIZE = len(SEAL % hashlib.sha256().hexdigest().encode())
BLOCK = 2**20  # bytes hashed at once
FOLDER = "analysis"  # of answers, in a run directory
DEFAULT = "default"  # the name of a question with no setting changed
OLD = "it is an answer of an earlier version; remove it and measure again with landscape analyze"


@dataclass(frozen=True, eq=False)
class Answer:
    """What a file holds.

    study: the study's name.
    question: what the question is called; also the name of the file.
    settings: every setting of the study.
    provenance: what was measured (`inputs`), by which versions.
    data: the numbers.
    """

    study: str
    question: str
    settings: Json
    provenance: Json
    data: xr.Dataset

    @property
    def digest(self) -> str:
        """A digest of the question and of what it was asked about, without the numbers."""
        return compute_digest(self.study, self.settings, self.provenance.get("inputs"))


def compute_digest(study: str, settings: Mapping[str, object], inputs: object) -> str:
    """Compute the digest of a question: of its study, settings, checkpoints and data."""
    text = json.dumps([FORMAT, study, settings, inputs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def write(path: Path, answer: Answer) -> None:
    """Write a sealed file in one step: a reader sees the old one or the new one."""
    content = pack(answer)
    write_atomically(path, content, seal(content))


def pack(answer: Answer) -> bytes:
    """Return an answer as the bytes of a netCDF-4 file, without a seal."""
    attributes = {
        "format": FORMAT,
        "study": answer.study,
        "question": answer.question,
        "settings": json.dumps(answer.settings, sort_keys=True, default=str),
        "provenance": json.dumps(answer.provenance, sort_keys=True, default=str),
    }
    facts = {str(name): _attribute(value) for name, value in answer.data.attrs.items()}
    buffer = io.BytesIO()
    answer.data.assign_attrs({**facts, **attributes}).to_netcdf(buffer, engine="h5netcdf")
    return buffer.getvalue()


def _attribute(value: object) -> str | int | float:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (str, int, float)) else json.dumps(value, default=str)


def seal(content: bytes) -> bytes:
    """Make the last line of a file: the hash of everything before it."""
    return SEAL % hashlib.sha256(content).hexdigest().encode()


def read(path: Path) -> Answer:
    """Read an answer; DamagedError if a byte of its file has changed since it was written."""
    try:
        if path.exists() and not path.is_file():
            raise DamagedError("not a file")  # a pipe would be waited for
        with open(path, "rb") as raw:
            _check_seal(raw)
            return _read_file(raw)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file. Has this study been run? landscape analyze makes it") from None
    except DamagedError as error:
        raise DamagedError(f"{path}: {error}") from None
    except Exception as error:  # a forged file makes h5py and xarray raise any of a dozen types; they all mean this
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DamagedError(f"{path}: not readable as results ({first})") from None


def verify(path: Path) -> str:
    """Say in one line what is wrong with an answer; an empty text if nothing is."""
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return ""


def find_answers(folder: Path) -> list[Path]:
    """Find the files of all answers in a folder such as `analysis`, including those of earlier versions."""
    return sorted([*folder.glob("[!.]*.h5"), *folder.glob("[!.]*/[!.]*.h5")])


def move_aside(path: Path) -> Path:
    """Rename a damaged file, and return its new path."""
    number = 1
    while (target := path.with_name(f"{path.name}.damaged{number}")).exists():
        number += 1
    os.replace(path, target)
    return target


def _check_seal(raw: BinaryIO) -> None:
    """Compare the last line with the bytes before it."""
    size = os.fstat(raw.fileno()).st_size - SEAL_SIZE
    digest = hashlib.sha256()
    for done in range(0, size, BLOCK):
        digest.update(raw.read(min(BLOCK, size - done)))
    raw.seek(max(size, 0))
    found = raw.read()
    if not found.startswith(SEAL.partition(b"%")[0]):
        raise DamagedError("not readable as results: it is cut short, or was made by a version that did not seal them")
    if found != SEAL % digest.hexdigest().encode():
        raise DamagedError("its content does not match the hash that was written with it")


def _read_file(raw: BinaryIO) -> Answer:
    size = raw.seek(0, os.SEEK_END)
    with h5py.File(raw, "r") as file:
        _check_format(file.attrs.get("format"))
        check_file(file, size)
        return unpack(file)


def unpack(file: h5py.File) -> Answer:
    """Make an answer of a netCDF-4 file whose structure has been checked.

    `xarray.load_dataset` gives the same, but takes ten times as long, and a report reads hundreds of files.
    """
    attributes = _plain_attributes(file)
    attributes.pop("format")
    study, question = (_pop_text(attributes, name) for name in ("study", "question"))
    settings, provenance = (_pop_json(attributes, name) for name in ("settings", "provenance"))
    coordinates = set(str(attributes.pop("coordinates", "")).split())
    variables = {}
    for name, dataset in file.items():
        if not is_bare_dimension(dataset):
            about = _plain_attributes(dataset)
            coordinates |= set(str(about.pop("coordinates", "")).split())
            variables[name] = _read_variable(name, dataset, about)
    data = xr.Dataset(variables, attrs=attributes).set_coords(coordinates & variables.keys())
    return Answer(study, question, settings, provenance, data)


def _read_variable(name: str, dataset: h5py.Dataset, about: Json) -> xr.Variable:
    """A variable with its axes, as `xarray` wrote it: flags are stored as bytes, texts as objects."""
    dims = (name,) if dataset.is_scale else tuple(dim[0].name.rpartition("/")[2] for dim in dataset.dims)
    if h5py.check_string_dtype(dataset.dtype) is not None:
        values = np.asarray(dataset.asstr()[()], dtype=str)
    else:
        values = dataset[()]
    if about.pop("dtype", "") == "bool":
        values = values.astype(bool)
    about.pop("_FillValue", None)
    return xr.Variable(dims, values, about)


def _plain_attributes(holder: h5py.File | h5py.Dataset) -> Json:
    """Return attributes as Python numbers and texts, without those of HDF5 and netCDF."""
    found = {}
    for name, value in holder.attrs.items():
        if name not in INTERNAL:
            plain = np.ravel(value)[0] if isinstance(value, np.ndarray) else value
            found[name] = plain.item() if isinstance(plain, np.generic) else plain
    return found


def _check_format(found: object) -> None:
    numbers = np.ravel(found)  # type: ignore[call-overload]  # netCDF stores a number as a list of one
    if numbers.shape != (1,) or numbers.dtype.kind not in "iu":
        raise DamagedError(f"not readable as results (format must be a number, got {type(found).__name__})")
    if numbers[0] > FORMAT:
        raise DamagedError(f"written by a newer version (format {numbers[0]}); update fl-landscape")
    if numbers[0] < FORMAT:
        raise DamagedError(OLD)


def _pop_text(attributes: dict[str, object], name: str) -> str:
    found = attributes.pop(name)
    if not isinstance(found, str):
        raise DamagedError(f"attribute {name} must be a text, got {type(found).__name__}")
    return found


def _pop_json(attributes: dict[str, object], name: str) -> Json:
    found = json.loads(_pop_text(attributes, name))
    if not isinstance(found, dict):
        raise DamagedError(f"attribute {name} must be a JSON object, got {type(found).__name__}")
    return found
