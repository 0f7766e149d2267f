"""Answers on disk: what was written comes back, every axis has a name, and damage is named, never overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from analysis import store
from analysis.store import Answer
from analysis.study import variable
from training.storage.atomic_files import DamagedError


@pytest.fixture
def answer() -> Answer:
    grid = np.arange(6.0).reshape(2, 3)
    grid[1, 2] = np.nan
    data = xr.Dataset(
        {
            "loss": variable(("round", "name"), grid, "loss", "nats"),
            "converged": variable("round", np.array([True, False]), "flag"),
            "total": variable((), 3.5, "a single number", "s"),
            "pixel": variable(("round", "axis"), np.ones((2, 4), dtype=np.float32), "an axis without coordinates"),
            "nothing": variable(("round", "none"), np.zeros((2, 0)), "an empty axis"),
            "seconds": variable("round", [1.0, 2.0], "time", "seconds since the start"),
        },
        {
            "round": variable("round", [5, 10], "communication round"),
            "name": variable("name", ["fedavg", "fedsäm", ""], "method"),
            "size": variable("name", [1, 2, 3], "a coordinate beside the axis' own"),
            "place": variable((), "here", "a coordinate of no axis"),
        },
        {"note": "on the whole", "list": [1, 2], "count": 7},
    )
    return Answer("curvature", "top5", {"top": 5, "rounds": "all"}, {"inputs": [{"run": "abc"}], "seed": [0]}, data)


def test_what_was_written_comes_back(tmp_path: Path, answer: Answer) -> None:
    path = tmp_path / "new" / "top5.h5"
    store.write(path, answer)
    found = store.read(path)
    for name in ("study", "question", "settings", "provenance", "digest"):
        assert getattr(found, name) == getattr(answer, name)
    assert set(found.data.variables) == set(answer.data.variables)
    for name, before in answer.data.variables.items():
        after = found.data.variables[name]
        np.testing.assert_array_equal(after.values, before.values)
        assert after.values.dtype.kind == before.values.dtype.kind
        assert (after.dims, after.attrs) == (before.dims, before.attrs)
    assert found.data.attrs == {"note": "on the whole", "list": "[1, 2]", "count": 7}
    assert list(path.parent.iterdir()) == [path]


def test_an_answer_that_was_read_can_be_written_again(tmp_path: Path, answer: Answer) -> None:
    store.write(tmp_path / "a.h5", answer)
    store.write(tmp_path / "b.h5", store.read(tmp_path / "a.h5"))
    first, second = (store.read(tmp_path / name).data for name in ("a.h5", "b.h5"))
    xr.testing.assert_identical(first, second)


def test_the_same_answer_has_the_same_bytes(tmp_path: Path, answer: Answer) -> None:
    for name in ("a.h5", "b.h5"):
        store.write(tmp_path / name, answer)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_xarray_sees_every_axis_by_name(tmp_path: Path, answer: Answer) -> None:
    store.write(tmp_path / "a.h5", answer)
    with xr.open_dataset(tmp_path / "a.h5", decode_times=False) as found:
        assert found["loss"].dims == ("round", "name")
        assert found["loss"].attrs["units"] == "nats"
        assert found["loss"].sel(round=10, name="fedsäm").item() == 4.0
        assert set(found.coords) == {"round", "name", "size", "place"}
        assert not any(str(dim).startswith("phony") for dim in found.dims)
        xr.testing.assert_identical(
            found.drop_attrs(deep=False), store.read(tmp_path / "a.h5").data.drop_attrs(deep=False)
        )


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.h5"
    store.write(path, answer)
    before = path.read_bytes()
    monkeypatch.setattr(store, "pack_dataset", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.write(path, answer)
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
def test_damage_is_named(tmp_path: Path, answer: Answer, damage) -> None:
    path = tmp_path / "a.h5"
    store.write(path, answer)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedError, match=r"a.h5: (not readable as results|its content does not match the hash)"):
        store.read(path)


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no such file\. Has this study been run"):
        store.read(tmp_path / "none.h5")


@pytest.mark.parametrize(("number", "message"), [(4, r"written by a newer version \(format 4\)"), (2, "measure again")])
def test_other_formats_are_refused(
    tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    monkeypatch.setattr(store, "FORMAT", number)
    store.write(tmp_path / "a.h5", answer)
    monkeypatch.undo()
    with pytest.raises(DamagedError, match=message):
        store.read(tmp_path / "a.h5")


def test_damaged_files_are_kept_under_another_name(tmp_path: Path) -> None:
    for content in ("one", "two"):
        (tmp_path / "a.h5").write_text(content)
        store.move_aside(tmp_path / "a.h5")
    assert (tmp_path / "a.h5.damaged1").read_text() == "one"
    assert (tmp_path / "a.h5.damaged2").read_text() == "two"


def test_answers_are_found_by_study_and_question(tmp_path: Path, answer: Answer) -> None:
    for name in ("curvature/default.h5", "curvature/top5.h5", "drift/default.h5", "old.h5", "curvature/.hidden.h5"):
        store.write(tmp_path / name, answer)
    names = [path.relative_to(tmp_path).as_posix() for path in store.find_answers(tmp_path)]
    assert names == ["curvature/default.h5", "curvature/top5.h5", "drift/default.h5", "old.h5"]


def test_the_question_has_a_fingerprint(answer: Answer) -> None:
    same = store.digest_of("curvature", {"rounds": "all", "top": 5}, [{"run": "abc"}])
    assert answer.digest == same
    assert store.digest_of("curvature", {"rounds": "all", "top": 6}, [{"run": "abc"}]) != same
    assert store.digest_of("curvature", {"rounds": "all", "top": 5}, [{"run": "abd"}]) != same


def test_reading_needs_no_torch() -> None:
    code = "import sys, analysis, analysis.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
