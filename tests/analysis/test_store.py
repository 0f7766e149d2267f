"""Results on disk: what was written comes back, every axis has a name, and damage is named, never overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray

from analysis import store
from analysis.store import DamagedError, Stored, Table, Variable


@pytest.fixture
def stored() -> Stored:
    grid = np.arange(6.0).reshape(2, 3)
    grid[1, 2] = np.nan
    table = Table(
        {
            "round": Variable(("round",), np.array([5, 10]), "communication round"),
            "name": Variable(("name",), np.array(["fedavg", "fedsäm", ""]), "method"),
            "loss": Variable(("round", "name"), grid, "loss", "nats"),
            "converged": Variable(("round",), np.array([True, False]), "flag"),
            "total": Variable((), np.array(3.5), "a single number", "s"),
            "pixel": Variable(("round", "axis"), np.ones((2, 4), dtype=np.float32), "an axis without coordinates"),
        },
        {"note": "on a table", "list": [1, 2], "count": 7},
    )
    return Stored(
        "curvature", {"top": 5, "rounds": "all"}, {"inputs": [{"run": "abc"}], "seed": [0]}, {"spectrum": table}
    )


def test_what_was_written_comes_back(tmp_path: Path, stored: Stored) -> None:
    path = tmp_path / "new" / "curvature.h5"
    store.write(path, stored)
    found = store.read(path)
    assert (found.study, found.settings, found.provenance) == (stored.study, stored.settings, stored.provenance)
    assert found.digest == stored.digest
    before, after = stored.tables["spectrum"], found.tables["spectrum"]
    assert set(after.variables) == {*before.variables, "axis"}
    for name, variable in before.variables.items():
        np.testing.assert_array_equal(after[name], variable.values)
        assert after.variables[name].dims == variable.dims
        assert after.variables[name].long_name == variable.long_name
        assert after.variables[name].units == variable.units
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_was_read_can_be_written_again(tmp_path: Path, stored: Stored) -> None:
    store.write(tmp_path / "a.h5", stored)
    store.write(tmp_path / "b.h5", store.read(tmp_path / "a.h5"))
    first, second = (store.read(tmp_path / name).tables["spectrum"].attributes for name in ("a.h5", "b.h5"))
    assert first == second
    assert second["count"] == 7


def test_xarray_sees_every_axis_by_name(tmp_path: Path, stored: Stored) -> None:
    store.write(tmp_path / "a.h5", stored)
    with xarray.open_dataset(tmp_path / "a.h5", group="spectrum", engine="h5netcdf") as found:
        assert found["loss"].dims == ("round", "name")
        assert found["loss"].attrs["units"] == "nats"
        assert found["loss"].sel(round=10, name="fedsäm").item() == 4.0
        assert list(found.coords) == ["round", "name", "axis"]
        assert not any(str(dim).startswith("phony") for dim in found.dims)
    with xarray.open_dataset(tmp_path / "a.h5", engine="h5netcdf") as root:
        assert not root.variables  # only leaf groups hold data


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.h5"
    store.write(path, stored)
    before = path.read_bytes()
    monkeypatch.setattr(store, "_write_table", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.write(path, stored)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: b"not HDF5" + content[8:],
        lambda content: b"\x00" * 3000,
    ],
    ids=["empty", "truncated", "head", "zeros"],
)
def test_damage_is_named(tmp_path: Path, stored: Stored, damage) -> None:
    path = tmp_path / "a.h5"
    store.write(path, stored)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedError, match=r"a.h5: (not readable as results|its content does not match the hash)"):
        store.read(path)


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no such file\. Has this study been run"):
        store.read(tmp_path / "none.h5")


def test_a_newer_format_is_refused(tmp_path: Path, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FORMAT", 3)
    store.write(tmp_path / "a.h5", stored)
    monkeypatch.undo()
    with pytest.raises(DamagedError, match=r"written by a newer version \(format 3\)"):
        store.read(tmp_path / "a.h5")


def test_axes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"2 axes are named .* got shape \(3,\)"):
        Variable(("a", "b"), np.zeros(3), "x")
    with pytest.raises(ValueError, match="y: axis a has 4 entries here and 3 elsewhere"):
        Table({"x": Variable(("a",), np.zeros(3), "x"), "y": Variable(("a",), np.zeros(4), "y")})


def test_damaged_files_are_kept_under_another_name(tmp_path: Path) -> None:
    for content in ("one", "two"):
        (tmp_path / "a.h5").write_text(content)
        store.move_aside(tmp_path / "a.h5")
    assert (tmp_path / "a.h5.damaged1").read_text() == "one"
    assert (tmp_path / "a.h5.damaged2").read_text() == "two"


def test_the_question_has_a_fingerprint(stored: Stored) -> None:
    same = store.digest_of("curvature", {"rounds": "all", "top": 5}, [{"run": "abc"}])
    assert stored.digest == same
    assert store.digest_of("curvature", {"rounds": "all", "top": 6}, [{"run": "abc"}]) != same
    assert store.digest_of("curvature", {"rounds": "all", "top": 5}, [{"run": "abd"}]) != same


def test_reading_needs_no_torch() -> None:
    code = "import sys, analysis, analysis.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
