"""Check an HDF5 file before a library reads it: it may refer to other files, or declare more data than it has.

This file imports no torch.
"""

from __future__ import annotations

import h5py
import numpy as np

from training.storage.atomic_files import DamagedError

AXES = "DIMENSION_LIST"  # the attribute in which HDF5 keeps the scales of a dataset's axes
LISTS = (AXES, "REFERENCE_LIST", "_Netcdf4Coordinates")  # that HDF5 and netCDF keep
INTERNAL = (*LISTS, "CLASS", "NAME", "_Netcdf4Dimid", "_NCProperties")  # attributes that say nothing to a reader
BARE = "This is a netCDF dimension but not a netCDF variable"  # how netCDF marks an axis without coordinates
CHANGING = ("scale_factor", "add_offset", "missing_value", "valid_range", "valid_min", "valid_max", "_Unsigned")
TEXT_SIZE = 16  # bytes that a text takes beside its letters, which lie elsewhere in the file
TEXTS_AT_ONCE = 16


def check_file(file: h5py.File, size: int) -> None:
    """Raise DamagedError unless a file holds datasets only, all of them within its own bytes.

    file: an open file, none of whose data have been read.
    size: its length in bytes.
    """
    datasets = [find_member(file, name) for name in file]
    declared = sum(_count_declared_bytes(dataset) for dataset in datasets)
    if declared > size:
        raise DamagedError(f"declares {declared} bytes of data, but has {size}")
    for dataset in datasets:
        _check_axes(file, dataset)
        if _holds_texts(dataset):
            _check_texts(dataset, size)
        _check_attributes(dataset)
    _check_attributes(file)


def find_member(group: h5py.Group, name: str) -> h5py.Dataset:
    """Find a dataset; DamagedError if it is not stored in this file itself.

    group: the file, or a group in it. name: of the dataset.
    """
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DamagedError(f"'{name}' is a link to somewhere else; results hold their data themselves")
    found = group[name]
    if not isinstance(found, h5py.Dataset):
        raise DamagedError(f"'{found.name}' is a {type(found).__name__.lower()}, expected a dataset")
    layout = found.id.get_create_plist()
    if layout.get_external_count() or layout.get_layout() == h5py.h5d.VIRTUAL:
        raise DamagedError(f"'{found.name}' is stored outside of this file")
    return found


def _count_declared_bytes(dataset: h5py.Dataset) -> int:
    """Count the bytes that a dataset takes in memory; DamagedError if they are not all in this file."""
    if dataset.shape is None:
        raise DamagedError(f"'{dataset.name}' has no shape")
    if dataset.size == 0 and dataset.dtype.kind in "iuf":
        return 0
    if dataset.id.get_create_plist().get_layout() not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS):
        raise DamagedError(f"'{dataset.name}' is stored in chunks, expected in one piece")
    if dataset.dtype.kind not in "iuf" and not _holds_texts(dataset):
        raise DamagedError(f"'{dataset.name}' holds {dataset.dtype}, expected numbers or texts")
    size = int(dataset.size) * (TEXT_SIZE if _holds_texts(dataset) else int(dataset.dtype.itemsize))
    stored = dataset.id.get_storage_size()
    if size != stored and not is_bare_dimension(dataset):
        raise DamagedError(f"'{dataset.name}' declares {size} bytes, but {stored} are stored")
    return size


def is_bare_dimension(dataset: h5py.Dataset) -> bool:
    """Whether a dataset only names an axis that has no coordinates."""
    name = dataset.attrs.get("NAME", b"")
    return bool(dataset.is_scale and isinstance(name, bytes) and name.startswith(BARE.encode()))


def _holds_texts(dataset: h5py.Dataset) -> bool:
    found = h5py.check_string_dtype(dataset.dtype)
    return found is not None and found.length is None


def _check_texts(dataset: h5py.Dataset, most: int) -> None:
    """Read texts a few at a time: many may share the same letters, and take more memory than the file has bytes."""
    letters = 0
    if not dataset.shape:
        return
    for row in np.ndindex(dataset.shape[:-1]):
        for first in range(0, dataset.shape[-1], TEXTS_AT_ONCE):
            letters += sum(map(len, dataset.asstr()[(*row, slice(first, first + TEXTS_AT_ONCE))]))
            if letters > most:
                raise DamagedError(f"'{dataset.name}' has more letters than the file has bytes")


def _check_axes(file: h5py.File, dataset: h5py.Dataset) -> None:
    """Verify the type of the list of axes: HDF5 relies on it, and overwrites memory if it is another."""
    if AXES not in dataset.attrs:
        if dataset.ndim and not dataset.is_scale:
            raise DamagedError(f"an axis of '{dataset.name}' is not named by one scale of this file")
        return
    about = dataset.attrs.get_id(AXES)
    kind = about.get_type()
    lists = isinstance(kind, h5py.h5t.TypeVlenID) and kind.get_super() == h5py.h5t.STD_REF_OBJ
    if not lists or about.shape != (dataset.ndim,):
        raise DamagedError(f"attribute {AXES} of '{dataset.name}' must be a list of scales for every axis")
    for dim in dataset.dims:
        if len(dim) != 1 or not dim[0].is_scale or dim[0].parent != file:
            raise DamagedError(f"an axis of '{dataset.name}' is not named by one scale of this file")


def _check_attributes(holder: h5py.Dataset | h5py.File) -> None:
    """Refuse attributes that are neither a text nor a number, HDF5's own aside, and those that would change numbers."""
    for name in holder.attrs:
        if name in LISTS:
            continue
        if name in CHANGING:
            raise DamagedError(f"attribute {name} of '{holder.name}' would change its numbers")
        value = holder.attrs[name]
        single = isinstance(value, np.ndarray) and value.shape == (1,) and value.dtype.kind in "iuf"
        if not single and not isinstance(value, (str, bytes, np.integer, np.floating)):
            raise DamagedError(
                f"attribute {name} of '{holder.name}' must be a text or a number, got {type(value).__name__}"
            )
