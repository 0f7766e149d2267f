"""Surfaces for other programs: Goldstein's layout there and back, VTK read by a few lines of XML."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
import xarray as xr

from analysis import store
from analysis.store import Answer, DamagedError
from analysis.subjects import Run
from reports import exports
from reports.exports import choose_surface
from tests.analysis.helpers import ask

X, Y = np.array([-1.0, 0.25, 2.0, 3.0]), np.array([0.0, 0.5, 7.0])  # not square, not even


def made(splits: tuple[str, ...] = ("train", "test"), models: int = 2) -> xr.Dataset:
    """loss = 100 model + 10 i + j, so that every entry tells where it belongs; one zero, one gap, one inf, one NaN."""
    i, j = np.meshgrid(np.arange(len(X)), np.arange(len(Y)), indexing="ij")
    loss = np.stack([[100.0 * model + 10 * i + j + 0.1 * k for k in range(len(splits))] for model in range(models)])
    done = np.ones(loss.shape, dtype=bool)
    loss[..., 1, 2], loss[..., 3, 0] = np.inf, np.nan
    loss[..., 2, 1], done[..., 2, 1] = np.nan, False
    error = np.where(done, (3 * i + j) / 17, np.nan)
    dims = ("model", "split", "x", "y")
    return xr.Dataset(
        {"loss": (dims, loss), "error": (dims, error), "done": (dims, done)},
        {
            "model": range(models),
            "model_run": ("model", [f"run_{model}" for model in range(models)]),
            "model_round": ("model", [10] * models),
            "model_client": ("model", [-1] * models),
            "split": list(splits),
            "x": X,
            "y": Y,
        },
    )


def surface(number: int = 0) -> xr.Dataset:
    """One of the surfaces of `made`."""
    return choose_surface(made(), run=f"run_{number}")


def test_goldstein_there_and_back_to_the_bit(tmp_path: Path) -> None:
    for number in (0, 1):
        exports.write_goldstein(tmp_path / "surface.h5", surface(number))
        back = exports.read_goldstein(tmp_path / "surface.h5")
        for name in ("loss", "error", "done"):
            assert back[name].dims == ("model", "split", "x", "y")
            np.testing.assert_array_equal(back[name].sel(model=0), made()[name].sel(model=number))
        for name in ("x", "y", "split"):
            np.testing.assert_array_equal(back[name], made()[name])
        assert back["model_run"].values.tolist() == ["surface"]
    assert [path.name for path in tmp_path.iterdir()] == ["surface.h5"]


def test_goldsteins_own_order_and_sentinel(tmp_path: Path) -> None:
    """His programs pair entry n of the ravelled array with entry n of the ravelled mesh of (x, y)."""
    exports.write_goldstein(tmp_path / "s.h5", surface())
    mesh_x, mesh_y = np.meshgrid(X, Y)
    with h5py.File(tmp_path / "s.h5") as file:
        assert file["xcoordinates"][:].tolist() == X.tolist()
        assert file["ycoordinates"][:].tolist() == Y.tolist()
        loss, accuracy = file["train_loss"][:], file["test_acc"][:]
    assert loss.shape == accuracy.shape == (len(X), len(Y))
    for n in range(loss.size):
        i, j = X.tolist().index(mesh_x.ravel()[n]), Y.tolist().index(mesh_y.ravel()[n])
        if (i, j) == (2, 1):
            assert loss.ravel()[n] == accuracy.ravel()[n] == -1
            continue
        assert accuracy.ravel()[n] == pytest.approx(100 * (1 - (3 * i + j) / 17))
        if (i, j) not in ((1, 2), (3, 0)):
            assert loss.ravel()[n] == 10 * i + j
    assert loss.ravel()[0] == 0.0  # a loss of zero is a loss


def test_a_file_that_goldstein_wrote(tmp_path: Path) -> None:
    mesh_x, mesh_y = np.meshgrid(X, Y)
    values = (10 * mesh_x + mesh_y).ravel()
    values[4] = -1.0
    for shape in ((len(X), len(Y)), (len(Y), len(X))):  # his, and that of programs which keep the mesh's shape
        with h5py.File(tmp_path / "his.h5", "w") as file:
            file["dir_file"] = "directions.h5"
            file["xcoordinates"], file["ycoordinates"] = X, Y
            file["train_loss"] = values.reshape(shape)
            file["train_acc"] = np.where(values == -1, -1, 25.0).reshape(shape)
        answer = exports.import_goldstein(tmp_path / "his.h5")
        assert answer.data["split"].values.tolist() == ["train"]
        found = choose_surface(answer.data).sel(split="train")
        expected = 10 * X[:, None] + Y[None]
        expected[0, 1] = np.nan
        np.testing.assert_array_equal(found["loss"], expected)
        np.testing.assert_array_equal(found["error"], np.where(np.isnan(expected), np.nan, 0.75))
        np.testing.assert_array_equal(found["done"], ~np.isnan(expected))
        store.write(tmp_path / "surface.h5", answer)
        xr.testing.assert_identical(store.read(tmp_path / "surface.h5").data, answer.data)


def test_accuracies_changed_by_someone_else_win(tmp_path: Path) -> None:
    exports.write_goldstein(tmp_path / "s.h5", surface())
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        file["train_acc"][...] = 50.0
    error = exports.read_goldstein(tmp_path / "s.h5")["error"].sel(model=0)
    assert (error.sel(split="train") == 0.5).all()
    np.testing.assert_array_equal(error.sel(split="test"), surface()["error"].sel(split="test"))


def arrays(path: Path) -> tuple[dict[str, Any], Any]:
    """The numbers of a .vts file by the format's own rules, and its extent."""
    root = ElementTree.parse(path).getroot()
    assert root.attrib == {
        "type": "StructuredGrid",
        "version": "1.0",
        "byte_order": "LittleEndian",
        "header_type": "UInt64",
    }
    found = {}
    for one in root.iter("DataArray"):
        raw = base64.b64decode(one.text or "")
        assert int.from_bytes(raw[:8], "little") == len(raw) - 8
        found[one.attrib["Name"]] = np.frombuffer(raw[8:], dtype="<f8")
    grid = root.find("StructuredGrid")
    assert grid is not None
    return found, grid.attrib["WholeExtent"]


def test_vtk_holds_the_same_numbers(tmp_path: Path) -> None:
    one = surface(1)
    exports.write_vtk(tmp_path / "s.vts", one, split="test", ceiling=125.0, scale=2.0)
    found, extent = arrays(tmp_path / "s.vts")
    assert extent == "0 3 0 2 0 0"
    assert set(found) == {"Points", *(f"{s}_{f}" for s in ("train", "test") for f in ("loss", "error", "done"))}
    points = found["Points"].reshape(len(Y), len(X), 3)  # x runs fastest
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            assert points[j, i, :2].tolist() == [x, y]
            loss = float(one["loss"].sel(split="test", x=x, y=y))
            height = 125.0 if loss == np.inf else 100.1 if np.isnan(loss) else min(loss, 125.0)
            assert points[j, i, 2] == 2 * height
    for split in ("train", "test"):
        for field in ("loss", "error", "done"):  # never cut
            values = found[f"{split}_{field}"].reshape(len(Y), len(X)).T
            np.testing.assert_array_equal(values, one[field].sel(split=split))
    exports.write_vtk(tmp_path / "t.vts", surface())
    assert arrays(tmp_path / "t.vts")[0]["Points"].reshape(-1, 3)[:, 2].max() == 32.0  # the largest finite loss


def test_stored_surfaces_and_planes_go_out(run: Run, tmp_path: Path) -> None:
    found = ask("surface", [run], tmp_path, steps=3, extent=0.5, clients=1)
    drawn = choose_surface(found)
    through = choose_surface(ask("plane", [run], tmp_path, steps=3))
    for one in (drawn, through):
        exports.write_goldstein(tmp_path / "g.h5", one)
        back = exports.read_goldstein(tmp_path / "g.h5")["loss"].sel(model=0)
        np.testing.assert_array_equal(back, one["loss"].sel(split=["train", "test"]))
    client = min(run.local_points(4))
    local = choose_surface(found, run=run.name, round=4, client=client)
    exports.write_vtk(tmp_path / "own.vts", local, split="own")
    values, _ = arrays(tmp_path / "own.vts")
    assert {name for name in values if name.endswith("_loss")} == {"train_loss", "own_loss"}  # no test data
    np.testing.assert_array_equal(values["train_loss"].reshape(3, 3).T, local["loss"].sel(split="train"))
    exports.write_vtk(tmp_path / "p.vts", through)
    with pytest.raises(ValueError, match="knows train and test, not 'own'"):
        exports.write_goldstein(tmp_path / "g.h5", local)


def test_bad_files_and_choices(tmp_path: Path) -> None:
    path = tmp_path / "bad.h5"
    with pytest.raises(ValueError, match="no such file"):
        exports.read_goldstein(path)
    path.write_bytes(b"not HDF5")
    with pytest.raises(DamagedError, match="not readable as HDF5"):
        exports.read_goldstein(path)
    assert path.read_bytes() == b"not HDF5"
    for held, message in (
        ({"xcoordinates": X}, "a surface holds xcoordinates, .* got xcoordinates"),
        ({"xcoordinates": X, "train_loss": X}, "it is a line, not a surface"),
        ({"xcoordinates": X, "ycoordinates": Y, "train_loss": X}, "train_loss has 4 entries, but 4 x 3"),
    ):
        with h5py.File(path, "w") as file:
            for name, values in held.items():
                file[name] = values
        with pytest.raises(ValueError, match=message):
            exports.read_goldstein(path)
    with pytest.raises(
        ValueError, match="no surface of run run_1, round 5; there are run run_0 round 10 client -1; run"
    ):
        choose_surface(made(), run="run_1", round=5)
    with pytest.raises(ValueError, match=r"holds no surface \(a loss over x and y\), only width"):
        choose_surface(xr.Dataset({"width": ("x", X)}))
    with pytest.raises(ValueError, match=r"write s.vts"):
        exports.write_vtk(tmp_path / "s.vtk", surface())
    with pytest.raises(ValueError, match="there is no own loss here, only train, test"):
        exports.write_vtk(tmp_path / "s.vts", surface(), split="own")
    empty = surface()
    empty["loss"][:] = np.nan
    with pytest.raises(ValueError, match="no point of this surface has a finite loss"):
        exports.write_vtk(tmp_path / "s.vts", empty)


def test_without_torch() -> None:
    code = "import sys, reports.exports; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0


def test_a_file_of_results_is_exported_by_the_ending_of_its_new_name(tmp_path: Path) -> None:
    path = tmp_path / "surface.h5"
    store.write(path, Answer("surface", "surface", {}, {}, made()))
    exports.export(path, tmp_path / "a.vts", run="run_1", split="test")
    assert "StructuredGrid" in (tmp_path / "a.vts").read_text()
    assert arrays(tmp_path / "a.vts")[0]["test_loss"][0] == 100.1
    exports.export(path, tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["train_loss"].shape == (len(X), len(Y))
    with pytest.raises(ValueError, match=r"a.obj: the file's ending must say the format: write .vts"):
        exports.export(path, tmp_path / "a.obj")
    with pytest.raises(ValueError, match=r"surface.h5: no surface of client 3; there are run run_0 round 10 client -1"):
        exports.export(path, tmp_path / "a.vts", client=3)
    store.write(tmp_path / "none.h5", Answer("training", "none", {}, {}, xr.Dataset({"notes": ("round", [1.0])})))
    with pytest.raises(ValueError, match=r"none.h5: holds no surface .* only notes"):
        exports.export(tmp_path / "none.h5", tmp_path / "a.vts")


@pytest.mark.parametrize(
    ("shape", "options"),
    [((10**6,), {"chunks": (1,)}), ((2**27,), {"chunks": (2**20,)}), (None, {})],
    ids=["a million pieces", "more than the file can hold", "no numbers at all"],
)
def test_a_surface_that_nobody_measured_is_refused_before_memory_is_taken(
    tmp_path: Path, shape: tuple[int, ...] | None, options: dict[str, Any]
) -> None:
    path = tmp_path / "surface.h5"
    with h5py.File(path, "w") as file:
        file["xcoordinates"] = X
        if shape is None:
            file["train_loss"] = h5py.Empty("f8")
        else:
            file.create_dataset("train_loss", shape=shape, dtype="f8", **options)
    with pytest.raises(DamagedError, match=r"surface.h5: train_loss must be numbers of a surface"):
        exports.read_goldstein(path)


def test_a_file_that_makes_the_library_crash_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = exports.ProcessPoolExecutor.submit  # the process gets a function that ends it, instead of the reader
    monkeypatch.setattr(exports.ProcessPoolExecutor, "submit", lambda pool, read, path: submit(pool, os._exit, 134))
    with pytest.raises(DamagedError, match=r"surface.h5: not readable as HDF5 \(it makes the library crash\)"):
        exports.read_goldstein(tmp_path / "surface.h5")
