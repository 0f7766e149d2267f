"""Datasets as the bytes of netCDF-4 files. This file imports no torch.

`xarray.Dataset.to_netcdf` writes the same file, but takes ten times as long, and a study keeps every piece in one.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from analysis.hdf5_checks import BARE

LIBRARY = f"version=2,h5py={h5py.__version__},hdf5={h5py.version.hdf5_version}"  # as netCDF says who wrote a file
Place = tuple[int, h5py.Dataset]  # the number of a dimension, and the scale that stands for it


def pack_dataset(data: xr.Dataset) -> bytes:
    """A netCDF-4 file of a Dataset whose variables hold numbers, flags and texts."""
    variables, attributes = xr.conventions.encode_dataset_coordinates(data)
    sizes = {str(dim): size for one in variables.values() for dim, size in zip(one.dims, one.shape, strict=True)}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", track_order=True) as file:
        file.attrs["_NCProperties"] = np.bytes_(LIBRARY)
        places: dict[str, Place] = {}
        for number, (dim, size) in enumerate(sizes.items()):
            if dim not in variables:
                places[dim] = number, _add_bare_dimension(file, dim, size)
        datasets = {str(name): _add_values(file, str(name), one) for name, one in variables.items()}
        for number, dim in enumerate(sizes):
            if dim not in places:
                datasets[dim].make_scale(dim)
                places[dim] = number, datasets[dim]
        for number, scale in places.values():
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
        for name, one in variables.items():
            _name_axes(datasets[str(name)], [places[str(dim)] for dim in one.dims])
            _describe(datasets[str(name)], one.attrs)
        _describe(file, attributes)
    return buffer.getvalue()


def _describe(holder: h5py.File | h5py.Dataset, attributes: Mapping[Any, object]) -> None:
    """Add attributes: texts, and numbers as lists of one, as netCDF has them."""
    for name, value in attributes.items():
        holder.attrs[str(name)] = value if isinstance(value, str) else np.atleast_1d(value)  # type: ignore[call-overload]


def _add_bare_dimension(file: h5py.File, dim: str, size: int) -> h5py.Dataset:
    """Add a scale that stands for a dimension without coordinates."""
    growing = {} if size else {"maxshape": (None,)}
    scale = file.create_dataset(dim, (size,), ">f4", track_order=True, **growing)
    scale.make_scale(f"{BARE}.{size:10}".encode())
    return scale


def _add_values(file: h5py.File, name: str, one: xr.Variable) -> h5py.Dataset:
    """Add the values of a variable: flags as bytes, as netCDF has none, and where floats are missing NaN."""
    values: NDArray[Any] = one.values
    options: dict[str, Any] = {}
    kind = values.dtype.kind
    if kind in "UO":
        values = np.asarray(values, dtype=str).astype(object)
        options["dtype"] = h5py.string_dtype()
    elif kind == "b":
        values = values.astype(np.int8)
    elif kind == "f":
        options["fillvalue"] = values.dtype.type(np.nan)
    elif kind not in "iu":
        raise TypeError(f"variable {name!r} holds {values.dtype}, expected numbers, flags or texts")
    if 0 in values.shape:
        options |= {"maxshape": tuple(size or None for size in values.shape), "chunks": True}
    dataset = file.create_dataset(name, data=values, track_order=True, **options)
    if kind == "f":
        dataset.attrs["_FillValue"] = np.full(1, np.nan, values.dtype)
    if kind == "b":
        dataset.attrs["dtype"] = "bool"
    return dataset


def _name_axes(dataset: h5py.Dataset, places: list[Place]) -> None:
    """Attach the scales of its dimensions to a variable that is not itself a scale, and number the dimensions."""
    if not places:
        return
    if not dataset.is_scale:
        for axis, (_, scale) in enumerate(places):
            dataset.dims[axis].attach_scale(scale)
        if dataset.maxshape[0] is not None:
            dataset.attrs["_Netcdf4Dimid"] = np.int32(places[0][0])
    dataset.attrs["_Netcdf4Coordinates"] = np.array([number for number, _ in places], np.int32)
