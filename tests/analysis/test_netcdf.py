"""Files of Datasets: the structure that xarray gives them, down to every attribute."""

from __future__ import annotations

import io

import h5py
import numpy as np
import pytest
import xarray as xr

from analysis.netcdf import pack_dataset

NOTHING = np.zeros(0)
DATASETS = {
    "numbers, flags and texts": xr.Dataset(
        {
            "loss": (("round", "name"), np.array([[1.0, np.nan], [3.0, 4.0]]), {"long_name": "loss", "units": "nats"}),
            "small": ("round", np.array([1.5, 2.5], np.float32)),
            "many": ("name", np.array([1, 2], np.uint8)),
            "sound": ("name", np.array([True, False])),
            "note": (("round", "name"), np.array([["a", "fedsäm"], ["", "b"]])),
        },
        {"round": [0, 10], "name": ["fedavg", "fedsäm"], "size": ("name", [3, 4])},
        {"rho": 0.1, "format": 3, "study": "drift"},
    ),
    "axes without coordinates": xr.Dataset(
        {"node": (("round", "probe", "step"), np.zeros((2, 3, 4))), "alone": ("step", np.arange(4))},
        {"round": [1, 2]},
    ),
    "single values": xr.Dataset({"value": ((), 2.0), "word": ((), "text"), "flag": ((), True)}, {"round": ((), 3)}),
    "nothing": xr.Dataset(
        {"empty": (("x", "y"), np.zeros((0, 3))), "none": ("z", NOTHING)}, {"x": NOTHING, "w": ("y", [1, 2, 3])}
    ),
}


def describe(content: bytes) -> dict[str, object]:
    """Everything that a file says, but for who wrote it and for addresses in it."""
    found: dict[str, object] = {}
    with h5py.File(io.BytesIO(content)) as file:
        for name, dataset in {"/": file, **file}.items():
            about = {key: describe_attribute(file, dataset, key) for key in dataset.attrs if key != "_NCProperties"}
            found[name] = about
            if isinstance(dataset, h5py.Dataset):
                layout = dataset.id.get_create_plist().get_layout()
                kind = (dataset.dtype, h5py.check_string_dtype(dataset.dtype), str(dataset.fillvalue), layout)
                found[name] = (dataset.shape, dataset.maxshape, kind, str(dataset[()]), about)
    return found


def describe_attribute(file: h5py.File, holder: h5py.Dataset, key: str) -> object:
    about = holder.attrs.get_id(key)
    if key == "DIMENSION_LIST":
        return [[scale.name for scale in dim.values()] for dim in holder.dims]
    if key == "REFERENCE_LIST":
        return sorted((file[place].name, int(axis)) for place, axis in holder.attrs[key])
    return str(holder.attrs[key]), about.shape, about.dtype


@pytest.mark.parametrize("name", DATASETS)
def test_a_file_is_what_xarray_writes(name: str) -> None:
    data, buffer = DATASETS[name], io.BytesIO()
    data.to_netcdf(buffer, engine="h5netcdf")
    content = pack_dataset(data)
    assert describe(content) == describe(buffer.getvalue())
    with h5py.File(io.BytesIO(content)) as one, h5py.File(buffer) as other:
        assert list(one) == list(other)  # in the order of the Dataset
    xr.testing.assert_identical(
        xr.load_dataset(io.BytesIO(content), engine="h5netcdf"), xr.load_dataset(buffer, engine="h5netcdf")
    )


def test_what_is_no_number_flag_or_text_is_refused() -> None:
    with pytest.raises(TypeError, match="variable 'z' holds complex128, expected numbers, flags or texts"):
        pack_dataset(xr.Dataset({"z": ("x", np.zeros(2, complex))}))
