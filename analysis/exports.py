"""Surfaces for other programs: Goldstein's HDF5 layout (written and read), and VTK for ParaView.

Takes and gives tables of the `surface` and `plane` studies, loss[..., i, j] at (x_i, y_j). Imports no torch.

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
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import h5py
import numpy as np
from numpy.typing import NDArray

from analysis import store
from analysis.store import DamagedError, Stored, Table, Variable
from training.executors.parent import end_with_parent, without_main

Array = NDArray[np.float64]
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


def export(results: Path, out: Path, *, group: str | None = None, row: int = 0) -> None:
    """A stored surface for another program: .vts for ParaView, .h5 in Goldstein's layout."""
    stored = store.read(results)
    surfaces = [name for name, table in stored.tables.items() if "x" in table.variables and "y" in table.variables]
    if not surfaces:
        raise ValueError(f"{results}: holds no surface, only {', '.join(stored.tables)}; export a surface or a plane")
    group = group or surfaces[0]
    if group not in surfaces:
        raise ValueError(f"{results}: no surface called '{group}', only {', '.join(surfaces)}")
    table = stored.tables[group]
    writers = {".vts": write_vtk, ".h5": write_goldstein}
    if out.suffix not in writers:
        raise ValueError(f"{out.name}: its ending says the format; write .vts (ParaView) or .h5 (Goldstein's layout)")
    writers[out.suffix](out, table, row)


def write_goldstein(path: Path, table: Table, row: int = 0) -> None:
    """One stored surface in Goldstein's layout.

    Adds train_error and test_error, fractions that his programs ignore: percentages do not give them back to the bit.
    """
    surface = one_surface(table, row)
    arrays = {"xcoordinates": table["x"], "ycoordinates": table["y"]}
    for split, fields in surface.items():
        if split not in SPLITS:
            raise ValueError(f"Goldstein's layout knows train and test, not '{split}': write_vtk takes any")
        done = fields["done"] != 0
        quantities = {"loss": fields["loss"], "acc": 100 * (1 - fields["error"]), "error": fields["error"]}
        for quantity, values in quantities.items():
            arrays[f"{split}_{quantity}"] = _to_mesh(np.where(done, values, MISSING))

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, values in arrays.items():
            file[name] = values
    store.replace(path, buffer.getvalue())


def read_goldstein(path: Path) -> Table:
    """A surface in Goldstein's layout as a table of the `surface` study, one row; also files of shape (ny, nx)."""
    arrays = _read_arrays(path)
    splits = [split for split in SPLITS if f"{split}_loss" in arrays]
    if "xcoordinates" not in arrays or not splits:
        held = ", ".join(sorted(arrays)) or "nothing"
        raise ValueError(f"{path}: a surface holds xcoordinates, ycoordinates and train_loss or test_loss; got {held}")
    if "ycoordinates" not in arrays:
        raise ValueError(f"{path}: has no ycoordinates: it is a line, not a surface")
    x, y = (arrays[name].astype(np.float64).reshape(-1) for name in ("xcoordinates", "ycoordinates"))
    fields = {name: [] for name in ("loss", "error", "done")}  # type: dict[str, list[Array]]
    for split in splits:
        loss = _from_mesh(path, arrays, f"{split}_loss", len(x), len(y))
        fields["loss"].append(loss)
        fields["error"].append(_error(path, arrays, split, loss))
        fields["done"].append((~_missing(arrays[f"{split}_loss"])).reshape(len(y), len(x)).T.astype(np.int8))
    dims = ("row", "split", "x", "y")
    about = {"loss": "mean loss", "error": "fraction of wrong predictions", "done": "1 where computed"}
    variables = {
        "run": Variable(("row",), np.asarray([path.stem]), "file it was read from"),
        "split": Variable(("split",), np.asarray(splits), "data"),
        "x": Variable(("x",), x, "along the first direction"),
        "y": Variable(("y",), y, "along the second direction"),
        **{name: Variable(dims, np.stack(values)[None], about[name]) for name, values in fields.items()},
    }
    return Table(variables)


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of Goldstein's layout in a file; other things in it are left alone.

    Others' files have no seal that tells damage, and damaged ones can make the HDF5 library overwrite its own memory:
    so they are read in a process of their own, and its end is one line.
    """
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_with_parent) as pool:
            with without_main():
                reading = pool.submit(_arrays_in, path)
            return reading.result()
    except BrokenProcessPool:
        raise DamagedError(f"{path}: not readable as HDF5 (it makes the library crash)") from None


def _arrays_in(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with open(path, "rb") as raw, h5py.File(raw, "r") as file:
            found = {name: store.member(file, name, h5py.Dataset) for name in GOLDSTEIN if name in file}
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
    """Whether a dataset has numbers that a file of `size` bytes can hold, in as many pieces as anybody writes."""
    if dataset.shape is None or dataset.dtype.kind not in "iuf":
        return False
    chunks = dataset.chunks or dataset.shape
    pieces = math.prod(-(-length // max(chunk, 1)) for length, chunk in zip(dataset.shape, chunks, strict=True))
    return bool(dataset.nbytes <= min(MOST_BYTES, MOST_PACKED * size)) and pieces <= MOST_PIECES


def import_goldstein(path: Path) -> Stored:
    """A file in Goldstein's layout as results of the `surface` study, to be written with store.write."""
    return Stored("surface", {}, {"imported": path.name}, {"global_models": read_goldstein(path)})


def write_vtk(
    path: Path, table: Table, row: int = 0, *, view: str | None = None, ceiling: float | None = None, scale: float = 1.0
) -> None:
    """One stored surface as a structured grid (.vts) for ParaView: loss as height, every quantity as a field.

    view     whose loss is the height; the first by default
    ceiling  heights stop there, so that a peak does not hide the valley; fields are never cut
    scale    of the heights, beside x and y
    Heights that are infinite are cut at the largest finite one, missing ones lie at the lowest; `done` tells them.
    """
    if path.suffix != ".vts":
        raise ValueError(
            f"{path.name}: ParaView knows a structured grid by .vts; write {path.with_suffix('.vts').name}"
        )
    surface = one_surface(table, row)
    view = next(iter(surface)) if view is None else view
    if view not in surface:
        raise ValueError(f"there is no {view} loss here, only {', '.join(surface)}")
    x, y = table["x"], table["y"]
    height = scale * _drawable(surface[view]["loss"], ceiling)
    mesh_x, mesh_y = np.meshgrid(x, y, indexing="ij")
    points = np.stack([mesh_x.T.ravel(), mesh_y.T.ravel(), height.T.ravel()], axis=1)
    fields = {f"{name}_{field}": values for name, some in surface.items() for field, values in some.items()}
    lines = [
        '<?xml version="1.0"?>',
        '<VTKFile type="StructuredGrid" version="1.0" byte_order="LittleEndian" header_type="UInt64">',
        f'<StructuredGrid WholeExtent="0 {len(x) - 1} 0 {len(y) - 1} 0 0">',
        f'<Piece Extent="0 {len(x) - 1} 0 {len(y) - 1} 0 0">',
        f"<PointData Scalars={quoteattr(f'{view}_loss')}>",
        *(_data_array(name, values.T.ravel()) for name, values in fields.items()),
        "</PointData>",
        "<Points>",
        _data_array("Points", points, components=3),
        "</Points>",
        "</Piece>",
        "</StructuredGrid>",
        "</VTKFile>",
        "",
    ]
    store.replace(path, "\n".join(lines).encode())


def one_surface(table: Table, row: int = 0) -> dict[str, dict[str, Array]]:
    """Data it is seen from -> quantity -> values [i, j], of one row of a surface study or of a plane."""
    if "loss" not in table.variables or table.variables["loss"].dims[-2:] != ("x", "y"):
        raise ValueError(f"not a surface: a table with loss over x and y is wanted, got {', '.join(table.variables)}")
    dims = table.variables["loss"].dims
    count = len(table["loss"]) if dims[0] == "row" else 1
    if not 0 <= row < count:
        raise ValueError(f"row must be between 0 and {count - 1}, got {row}")
    data = table[dims[-3]]
    chosen = {
        field: table[field][row] if dims[0] == "row" else table[field]
        for field in ("loss", "error", "standard_error", "done")
        if field in table.variables
    }
    return {
        str(name): {field: values[place].astype(np.float64) for field, values in chosen.items()}
        for place, name in enumerate(data)
    }


def _to_mesh(values: Array) -> Array:
    """Loss[i, j] as Goldstein's programs lay it out: shape (nx, ny), filled as if it were (ny, nx)."""
    return values.T.reshape(values.shape)


def _from_mesh(path: Path, arrays: dict[str, Any], name: str, nx: int, ny: int) -> Array:
    values = arrays[name]
    if values.size != nx * ny:
        raise ValueError(f"{path}: {name} has {values.size} entries, but {nx} x {ny} coordinates are given")
    filled = np.where(_missing(values), np.nan, values)
    return np.asarray(filled.reshape(ny, nx).T, dtype=np.float64)


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    # not "<= 0", which is his test: a loss of zero is a loss
    return np.asarray(values == MISSING)


def _error(path: Path, arrays: dict[str, Any], split: str, like: Array) -> Array:
    """Errors as fractions: those we wrote, as long as the percentages beside them say the same."""
    nx, ny = like.shape
    if f"{split}_acc" not in arrays:
        return np.full(like.shape, np.nan)
    error: Array = 1 - _from_mesh(path, arrays, f"{split}_acc", nx, ny) / 100
    if f"{split}_error" not in arrays:
        return error
    exact = _from_mesh(path, arrays, f"{split}_error", nx, ny)
    return exact if np.allclose(exact, error, rtol=0, atol=1e-9, equal_nan=True) else error


def _drawable(loss: Array, ceiling: float | None) -> Array:
    finite = loss[np.isfinite(loss)]
    if not len(finite):
        raise ValueError("no point of this surface has a finite loss: there is nothing to draw")
    top = float(finite.max()) if ceiling is None else ceiling
    return np.asarray(np.minimum(np.nan_to_num(loss, nan=finite.min(), posinf=top, neginf=finite.min()), top))


def _data_array(name: str, values: Array, components: int = 1) -> str:
    """Numbers in base64 with their length before them: exact, and NaN survives, which it does not as text."""
    numbers = np.ascontiguousarray(values, dtype="<f8").tobytes()
    text = base64.b64encode(len(numbers).to_bytes(8, "little") + numbers).decode()
    head = f'<DataArray type="Float64" Name={quoteattr(name)} NumberOfComponents="{components}" format="binary">'
    return f"{head}{text}</DataArray>"
