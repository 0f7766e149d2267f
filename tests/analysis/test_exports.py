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

from analysis import exports, runner, store
from analysis.store import DamagedError, Table, Variable
from analysis.studies import plane, surface
from analysis.subjects import Run

X, Y = np.array([-1.0, 0.25, 2.0, 3.0]), np.array([0.0, 0.5, 7.0])  # not square, not even


def made(splits: tuple[str, ...] = ("train", "test"), rows: int = 2) -> Table:
    """loss = 100 row + 10 i + j, so that every entry tells where it belongs; one zero, one gap, one inf, one NaN."""
    i, j = np.meshgrid(np.arange(len(X)), np.arange(len(Y)), indexing="ij")
    loss = np.stack([[100.0 * row + 10 * i + j + 0.1 * k for k in range(len(splits))] for row in range(rows)])
    done = np.ones(loss.shape, dtype=np.int8)
    loss[..., 1, 2], loss[..., 3, 0] = np.inf, np.nan
    loss[..., 2, 1], done[..., 2, 1] = np.nan, 0
    error = np.where(done != 0, (3 * i + j) / 17, np.nan)
    dims = ("row", "split", "x", "y")
    return Table(
        {
            "split": Variable(("split",), np.asarray(splits), "data"),
            "x": Variable(("x",), X, "x"),
            "y": Variable(("y",), Y, "y"),
            "loss": Variable(dims, loss, "loss"),
            "error": Variable(dims, error, "error"),
            "done": Variable(dims, done, "done"),
        }
    )


def test_goldstein_there_and_back_to_the_bit(tmp_path: Path) -> None:
    table = made()
    for row in (0, 1):
        exports.write_goldstein(tmp_path / "surface.h5", table, row)
        back = exports.read_goldstein(tmp_path / "surface.h5")
        for name in ("loss", "error", "done"):
            assert back.variables[name].dims == ("row", "split", "x", "y")
            np.testing.assert_array_equal(back[name][0], table[name][row])
        for name in ("x", "y", "split"):
            np.testing.assert_array_equal(back[name], table[name])
        assert back["run"].tolist() == ["surface"]
    assert [path.name for path in tmp_path.iterdir()] == ["surface.h5"]


def test_goldsteins_own_order_and_sentinel(tmp_path: Path) -> None:
    """His programs pair entry n of the ravelled array with entry n of the ravelled mesh of (x, y)."""
    exports.write_goldstein(tmp_path / "s.h5", made())
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
        stored = exports.import_goldstein(tmp_path / "his.h5")
        table = stored.tables["global_models"]
        assert table["split"].tolist() == ["train"]
        expected = 10 * X[:, None] + Y[None]
        expected[0, 1] = np.nan
        np.testing.assert_array_equal(table["loss"][0, 0], expected)
        np.testing.assert_array_equal(table["error"][0, 0], np.where(np.isnan(expected), np.nan, 0.75))
        np.testing.assert_array_equal(table["done"][0, 0], ~np.isnan(expected))
        store.write(tmp_path / "surface.h5", stored)
        np.testing.assert_array_equal(
            store.read(tmp_path / "surface.h5").tables["global_models"]["loss"], table["loss"]
        )


def test_accuracies_changed_by_someone_else_win(tmp_path: Path) -> None:
    exports.write_goldstein(tmp_path / "s.h5", made())
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        file["train_acc"][...] = 50.0
    error = exports.read_goldstein(tmp_path / "s.h5")["error"]
    assert (error[0, 0] == 0.5).all()
    np.testing.assert_array_equal(error[0, 1], made()["error"][0, 1])


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
    table = made()
    exports.write_vtk(tmp_path / "s.vts", table, 1, view="test", ceiling=125.0, scale=2.0)
    found, extent = arrays(tmp_path / "s.vts")
    assert extent == "0 3 0 2 0 0"
    assert set(found) == {"Points", *(f"{s}_{f}" for s in ("train", "test") for f in ("loss", "error", "done"))}
    points = found["Points"].reshape(len(Y), len(X), 3)  # x runs fastest
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            assert points[j, i, :2].tolist() == [x, y]
            loss = table["loss"][1, 1, i, j]
            height = 125.0 if loss == np.inf else 100.1 if np.isnan(loss) else min(loss, 125.0)
            assert points[j, i, 2] == 2 * height
    for k, split in enumerate(("train", "test")):
        for field in ("loss", "error", "done"):  # never cut
            values = found[f"{split}_{field}"].reshape(len(Y), len(X)).T
            np.testing.assert_array_equal(values, table[field][1, k])
    exports.write_vtk(tmp_path / "t.vts", table)
    assert arrays(tmp_path / "t.vts")[0]["Points"].reshape(-1, 3)[:, 2].max() == 32.0  # the largest finite loss


def test_stored_surfaces_and_planes_go_out(run: Run, tmp_path: Path) -> None:
    def stored(study: Any, settings: Any) -> store.Stored:
        return store.read(runner.carry_out(runner.plan(study, settings, [run], tmp_path)))

    drawn = stored(surface.STUDY, surface.Settings(steps=3, extent=0.5, clients=1)).tables
    through = stored(plane.STUDY, plane.Settings(steps=3)).tables["plane_0"]
    for table in (drawn["global_models"], through):
        exports.write_goldstein(tmp_path / "g.h5", table)
        loss = table["loss"][0] if table is not through else table["loss"]
        np.testing.assert_array_equal(exports.read_goldstein(tmp_path / "g.h5")["loss"][0], loss)
    exports.write_vtk(tmp_path / "own.vts", drawn["local_models"], view="own")
    found, _ = arrays(tmp_path / "own.vts")
    np.testing.assert_array_equal(found["everyone_loss"].reshape(3, 3).T, drawn["local_models"]["loss"][0, 1])
    exports.write_vtk(tmp_path / "p.vts", through)
    with pytest.raises(ValueError, match="knows train and test, not 'own'"):
        exports.write_goldstein(tmp_path / "g.h5", drawn["local_models"])


def test_bad_files_and_tables(tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match="row must be between 0 and 1, got 2"):
        exports.write_goldstein(path, made(), 2)
    with pytest.raises(ValueError, match="not a surface: a table with loss over x and y"):
        exports.write_goldstein(path, Table({"x": Variable(("x",), X, "x")}))
    with pytest.raises(ValueError, match=r"write s.vts"):
        exports.write_vtk(tmp_path / "s.vtk", made())
    with pytest.raises(ValueError, match="there is no own loss here, only train, test"):
        exports.write_vtk(tmp_path / "s.vts", made(), view="own")
    empty = made()
    empty["loss"][:] = np.nan
    with pytest.raises(ValueError, match="no point of this surface has a finite loss"):
        exports.write_vtk(tmp_path / "s.vts", empty)


def test_without_torch() -> None:
    code = "import sys, analysis.exports; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0


def test_a_file_of_results_is_exported_by_the_ending_of_its_new_name(tmp_path: Path) -> None:
    from analysis import store
    from analysis.exports import export
    from analysis.store import Stored, Table, Variable

    grid = np.arange(6.0).reshape(1, 1, 3, 2)
    table = Table(
        {
            "split": Variable(("split",), np.asarray(["train"]), "data"),
            "x": Variable(("x",), np.arange(3.0), "x"),
            "y": Variable(("y",), np.arange(2.0), "y"),
            **{name: Variable(("row", "split", "x", "y"), grid, name) for name in ("loss", "error", "done")},
        }
    )
    other = Table({"round": Variable(("round",), np.arange(2), "round")})
    store.write(tmp_path / "surface.h5", Stored("surface", {}, {}, {"notes": other, "global_models": table}))
    export(tmp_path / "surface.h5", tmp_path / "a.vts")
    assert "StructuredGrid" in (tmp_path / "a.vts").read_text()
    export(tmp_path / "surface.h5", tmp_path / "a.h5", group="global_models")
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["train_loss"].shape == (3, 2)
    with pytest.raises(ValueError, match=r"a.obj: its ending says the format; write .vts"):
        export(tmp_path / "surface.h5", tmp_path / "a.obj")
    with pytest.raises(ValueError, match="no surface called 'local_models', only global_models"):
        export(tmp_path / "surface.h5", tmp_path / "a.vts", group="local_models")
    store.write(tmp_path / "none.h5", Stored("training", {}, {}, {"notes": other}))
    with pytest.raises(ValueError, match="holds no surface, only notes"):
        export(tmp_path / "none.h5", tmp_path / "a.vts")


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
