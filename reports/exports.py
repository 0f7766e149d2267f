"""Surfaces for other programs: Goldstein's HDF5 layout (written and read), and VTK for ParaView.

Takes and gives Datasets of the studies `surface` and `plane`, loss[..., i, j] at (x_i, y_j). Imports no torch.

Goldstein's files (Li et al. 2018) hold xcoordinates, ycoordinates and train_loss, train_acc, test_loss, test_acc,
accuracies in percent and -1 where nothing was computed. Their arrays have shape (nx, ny), but are filled in the order
of a mesh of shape (ny, nx): entry number j nx + i belongs to (x_i, y_j). For square grids that is a transpose.
"""

from __future__ import annotations

import base64
import io
import math
import multiprocessing
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from xml.sax.saxutils import quoteattr

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from analysis import store
from analysis.store import Answer
from training.executors.parent import end_with_parent, without_main
from training.storage.atomic_files import DamagedError, write_atomically
from training.storage.hdf5_checks import find_member

Array = NDArray[np.float64]
Raw = Mapping[str, NDArray[np.generic]]  # arrays of a file in Goldstein's layout by name
FIELDS = {
    "loss": "mean loss",
    "error": "fraction of wrong predictions",
    "standard_error": "standard error of the loss",
    "done": "whether it was computed",
}
MISSING = -1.0
SPLITS = ("train", "test")
GOLDSTEIN = (
    "xcoordinates",
    "ycoordinates",
    *(f"{split}_{quantity}" for split in SPLITS for quantity in ("loss", "acc", "error")),
)
MOST_BYTES = 2**30  # of one array that is read: a surface of 10,000 x 10,000 points
MOST_PACKED = 1100  # bytes that one byte of a packed file can stand for; zlib's limit is 1032
MOST_PIECES = 10_000  # in which an array is stored: HDF5 takes a kilobyte for each


def export(
    results: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    run: str | None = None,
    round: int | None = None,
    client: int | None = None,
    split: str | None = None,
) -> None:
    """Write a stored surface for another program.

    results: an answer of the study `surface` or `plane`.
    out: the new file; .vts for ParaView, .h5 in Goldstein's layout.
    run, round, client: the model whose surface it is, see `choose_surface`.
    split: the data whose loss is the height in ParaView.
    """
    results, out = Path(results), Path(out)
    if out.suffix not in (".vts", ".h5"):
        raise ValueError(
            f"{out.name}: the file's ending must say the format: write .vts (ParaView) or .h5 (Goldstein's layout)"
        )
    try:
        surface = choose_surface(store.read(results).data, run=run, round=round, client=client)
    except ValueError as error:
        raise ValueError(str(error) if str(results) in str(error) else f"{results}: {error}") from None
    if out.suffix == ".vts":
        write_vtk(out, surface, split=split)
    else:
        write_goldstein(out, surface)


def choose_surface(
    data: xr.Dataset, *, run: str | None = None, round: int | None = None, client: int | None = None
) -> xr.Dataset:
    """The first surface around a model, or the first plane through one, that fits: loss and error by split, x and y.

    data: of the study `surface` or `plane`.
    run: the name of the model's run.
    round: its communication round.
    client: the participant whose model it is; -1: a global model.
    """
    if "loss" not in data or not {"x", "y"} <= set(data.variables):
        known = ", ".join(map(str, data.data_vars))
        raise ValueError(f"holds no surface (a loss over x and y), only {known}; export a surface or a plane")
    wanted = {"run": run, "round": round, "client": client}
    fits = np.ones(data["model_run"].shape, dtype=bool)
    for name, value in wanted.items():
        fits &= True if value is None else data[f"model_{name}"].values == value
    if not fits.any():
        asked = ", ".join(f"{name} {value}" for name, value in wanted.items() if value is not None)
        raise ValueError(f"no surface of {asked}; there are {_list_models(data)}")
    first = int(np.argwhere(fits)[0, 0])
    if "plane" in data.dims:
        return data.isel(plane=first).swap_dims(x_index="x", y_index="y")
    return data.isel(model=first)


def _list_models(data: xr.Dataset) -> str:
    """The models of an answer for a message."""
    columns = (data[f"model_{name}"].values.ravel().tolist() for name in ("run", "round", "client"))
    texts = [f"run {run} round {round} client {client}" for run, round, client in zip(*columns, strict=True)]
    return "; ".join(dict.fromkeys(texts))


def list_fields(surface: xr.Dataset) -> dict[str, dict[str, Array]]:
    """Split -> quantity -> values [i, j], for the splits that were measured.

    surface: as `choose_surface` gives it.
    """
    return {
        split: {name: surface[name].sel(split=split).values.astype(np.float64) for name in FIELDS if name in surface}
        for split in surface["split"].values.tolist()
        if surface["done"].sel(split=split).any()
    }


def write_goldstein(path: Path, surface: xr.Dataset) -> None:
    """Write a surface in Goldstein's layout.

    Adds train_error and test_error, fractions that his programs ignore: percentages do not give them back to the bit.

    surface: as `choose_surface` gives it.
    """
    arrays = {"xcoordinates": surface["x"].values, "ycoordinates": surface["y"].values}
    for split, fields in list_fields(surface).items():
        if split not in SPLITS:
            raise ValueError(f"Goldstein's layout knows train and test, not '{split}': write a .vts file instead")
        quantities = {"loss": fields["loss"], "acc": 100 * (1 - fields["error"]), "error": fields["error"]}
        for quantity, values in quantities.items():
            arrays[f"{split}_{quantity}"] = _to_mesh(np.where(fields["done"] != 0, values, MISSING))

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, values in arrays.items():
            file[name] = values
    write_atomically(path, buffer.getvalue())


def read_goldstein(path: Path) -> xr.Dataset:
    """Read a surface in Goldstein's layout as data of the study `surface`; also files of shape (ny, nx)."""
    arrays = _read_arrays(path)
    splits = [split for split in SPLITS if f"{split}_loss" in arrays]
    if "xcoordinates" not in arrays or not splits:
        held = ", ".join(sorted(arrays)) or "nothing"
        raise ValueError(f"{path}: a surface holds xcoordinates, ycoordinates and train_loss or test_loss; got {held}")
    if "ycoordinates" not in arrays:
        raise ValueError(f"{path}: has no ycoordinates: it is a line, not a surface")
    x, y = (arrays[name].astype(np.float64).reshape(-1) for name in ("xcoordinates", "ycoordinates"))
    fields = {
        name: _from_mesh(path, name, arrays[name], len(x), len(y)) for name in arrays if "coordinates" not in name
    }
    found = {
        "loss": [np.where(fields[f"{split}_loss"] == MISSING, np.nan, fields[f"{split}_loss"]) for split in splits],
        "error": [_find_error(fields, split) for split in splits],
        "done": [fields[f"{split}_loss"] != MISSING for split in splits],  # his test is "> 0", but a loss may be zero
    }

    def name(dims: str | tuple[str, ...], values: object, long_name: str) -> xr.Variable:
        return xr.Variable(dims, np.asarray(values), {"long_name": long_name, "units": "1"})

    return xr.Dataset(
        {field: name(("model", "split", "x", "y"), [values], FIELDS[field]) for field, values in found.items()},
        {
            "model": name("model", [0], "model"),
            "model_run": name("model", [path.stem], "file it was read from"),
            "model_round": name("model", [0], "communication round: not on record"),
            "model_client": name("model", [-1], "client; -1: the global model"),
            "split": name("split", splits, "data that were evaluated"),
            "x": name("x", x, "along the first direction"),
            "y": name("y", y, "along the second direction"),
        },
    )


def _read_arrays(path: Path) -> Raw:
    """Read the arrays of Goldstein's layout, and nothing else that a file may hold.

    Other programs' files have no seal, and a damaged one can make the HDF5 library overwrite its own memory. They are
    therefore read in a separate process; if that crashes, the user sees one line.
    """
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_with_parent) as pool:
            with without_main():
                reading = pool.submit(_open_arrays, path)
            return reading.result()
    except BrokenProcessPool:
        raise DamagedError(f"{path}: not readable as HDF5 (it makes the library crash)") from None


def _open_arrays(path: Path) -> Raw:
    try:
        with open(path, "rb") as raw, h5py.File(raw, "r") as file:
            found = {name: find_member(file, name) for name in GOLDSTEIN if name in file}
            size = os.fstat(raw.fileno()).st_size
            for name, dataset in found.items():
                if not _holds_surface(dataset, size):
                    raise DamagedError(f"{name} must be numbers of a surface, got {dataset.dtype} {dataset.shape}")
            return {name: np.asarray(dataset[()]) for name, dataset in found.items()}
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except DamagedError as error:
        raise DamagedError(f"{path}: {error}") from None
    except Exception as error:  # a damaged file makes h5py raise any of a dozen types; they all mean this
        raise DamagedError(f"{path}: not readable as HDF5 ({error})") from None


def _holds_surface(dataset: h5py.Dataset, size: int) -> bool:
    """Whether a dataset has numbers, not more than a file of `size` bytes can hold, in a sensible number of chunks."""
    if dataset.shape is None or dataset.dtype.kind not in "iuf":
        return False
    chunks = dataset.chunks or dataset.shape
    pieces = math.prod(-(-length // max(chunk, 1)) for length, chunk in zip(dataset.shape, chunks, strict=True))
    return bool(dataset.nbytes <= min(MOST_BYTES, MOST_PACKED * size)) and pieces <= MOST_PIECES


def import_surface(source: str | os.PathLike[str], out: str | os.PathLike[str]) -> xr.Dataset:
    """Write an answer of the study `surface` from a surface in Goldstein's layout, and return its numbers.

    source: his file. out: the new one, such as analysis/surface/NAME.h5; ValueError if it exists.
    """
    source, out = Path(source), Path(out)
    if out.exists():
        raise ValueError(f"{out} exists already: choose another name")
    answer = import_goldstein(source, out.stem)
    store.write(out, answer)
    return answer.data


def import_goldstein(path: Path, question: str = "imported") -> Answer:
    """Make an answer of the study `surface` from a file in Goldstein's layout, to be written with `store.write`.

    path: of that file.
    question: what to call it; also the name of the new file.
    """
    return Answer("surface", question, {}, {"imported": path.name}, read_goldstein(path))


def write_vtk(
    path: Path, surface: xr.Dataset, *, split: str | None = None, ceiling: float | None = None, scale: float = 1.0
) -> None:
    """Write a surface as a structured grid (.vts) for ParaView: loss as height, every quantity as a field.

    Infinite heights are cut at the largest finite one, missing ones lie at the lowest; the field `done` tells them.

    surface: as `choose_surface` gives it.
    split: the data whose loss is the height; by default the first.
    ceiling: where heights are cut off, so that a peak does not hide the valley; fields are never cut.
    scale: factor of the heights, to fit x and y.
    """
    if path.suffix != ".vts":
        raise ValueError(
            f"{path.name}: ParaView knows a structured grid by .vts; write {path.with_suffix('.vts').name}"
        )
    measured = list_fields(surface)
    split = next(iter(measured), "") if split is None else split
    if split not in measured:
        raise ValueError(f"there is no {split} loss here, only {', '.join(measured)}")
    x, y = surface["x"].values, surface["y"].values
    height = scale * _make_drawable(measured[split]["loss"], ceiling)
    mesh_x, mesh_y = np.meshgrid(x, y, indexing="ij")
    points = np.stack([mesh_x.T.ravel(), mesh_y.T.ravel(), height.T.ravel()], axis=1)
    fields = {f"{name}_{field}": values for name, some in measured.items() for field, values in some.items()}
    lines = [
        '<?xml version="1.0"?>',
        '<VTKFile type="StructuredGrid" version="1.0" byte_order="LittleEndian" header_type="UInt64">',
        f'<StructuredGrid WholeExtent="0 {len(x) - 1} 0 {len(y) - 1} 0 0">',
        f'<Piece Extent="0 {len(x) - 1} 0 {len(y) - 1} 0 0">',
        f"<PointData Scalars={quoteattr(f'{split}_loss')}>",
        *(_encode(name, values.T.ravel()) for name, values in fields.items()),
        "</PointData>",
        "<Points>",
        _encode("Points", points, components=3),
        "</Points>",
        "</Piece>",
        "</StructuredGrid>",
        "</VTKFile>",
        "",
    ]
    write_atomically(path, "\n".join(lines).encode())


def _to_mesh(values: Array) -> Array:
    """Loss[i, j] as Goldstein's programs lay it out: shape (nx, ny), filled as if it were (ny, nx)."""
    return values.T.reshape(values.shape)


def _from_mesh(path: Path, name: str, values: NDArray[np.generic], nx: int, ny: int) -> Array:
    if values.size != nx * ny:
        raise ValueError(f"{path}: {name} has {values.size} entries, but {nx} x {ny} coordinates are given")
    return values.reshape(ny, nx).T.astype(np.float64)


def _find_error(fields: Mapping[str, Array], split: str) -> Array:
    """Errors as fractions: the exact ones that we wrote, unless the percentages beside them have been changed."""
    unknown = np.full_like(fields[f"{split}_loss"], MISSING)
    percent = fields.get(f"{split}_acc", unknown)
    error = np.where(percent == MISSING, np.nan, 1 - percent / 100)
    exact = fields.get(f"{split}_error", error)
    exact = np.where(exact == MISSING, np.nan, exact)
    return exact if np.allclose(exact, error, rtol=0, atol=1e-9, equal_nan=True) else error


def _make_drawable(loss: Array, ceiling: float | None) -> Array:
    finite = loss[np.isfinite(loss)]
    if not len(finite):
        raise ValueError("no point of this surface has a finite loss: there is nothing to draw")
    top = float(finite.max()) if ceiling is None else ceiling
    return np.asarray(np.minimum(np.nan_to_num(loss, nan=finite.min(), posinf=top, neginf=finite.min()), top))


def _encode(name: str, values: Array, components: int = 1) -> str:
    """Encode numbers in base64 behind their length: exact, and unlike text it keeps NaN."""
    numbers = np.ascontiguousarray(values, dtype="<f8").tobytes()
    text = base64.b64encode(len(numbers).to_bytes(8, "little") + numbers).decode()
    head = f'<DataArray type="Float64" Name={quoteattr(name)} NumberOfComponents="{components}" format="binary">'
    return f"{head}{text}</DataArray>"
