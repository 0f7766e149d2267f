"""Damaged and forged files of results: the values that were written, or one line; never other values, never more."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from analysis import store
from analysis.store import Answer
from analysis.study import variable
from training.storage.atomic_files import DamagedError
from training.storage.hdf5_checks import TEXT_SIZE

TRIALS = 400


def example() -> Answer:
    data = xr.Dataset(
        {
            "loss": variable(("round", "layer"), np.linspace(0, 1, 6).reshape(3, 2), "loss", "nats"),
            "single": variable((), 2.5, "a single number"),
            "bare": variable(("round", "probe"), np.ones((3, 2)), "an axis without coordinates"),
        },
        {
            "round": variable("round", np.arange(3), "communication round"),
            "layer": variable("layer", ["conv.weight", "fc"], "parameter tensor"),
        },
        {"radius": 0.05, "note": "a word"},
    )
    return Answer("curvature", "default", {"top": 5}, {"inputs": [{"run": "abc"}]}, data)


def mutate(content: bytes, dice: random.Random) -> bytes:
    """One accident: a bit, a byte, a run of bytes, a hole, a cut, or something added."""
    place, span = dice.randrange(len(content)), dice.randrange(1, 200)
    before, after = content[:place], content[place:]
    return dice.choice(
        [
            lambda: before + bytes([after[0] ^ 1 << dice.randrange(8)]) + after[1:],
            lambda: before + bytes([dice.randrange(256)]) + after[1:],
            lambda: before + dice.randbytes(span) + after[span:],
            lambda: before + bytes(span) + after[span:],
            lambda: before + after[span:],
            lambda: before,
            lambda: before + dice.randbytes(span) + after,
            lambda: after + before,
            lambda: content + dice.randbytes(span),
        ]
    )()


def test_accidents_never_give_other_values(tmp_path: Path) -> None:
    path, dice = tmp_path / "a.h5", random.Random(0)
    store.write(path, example())
    content = path.read_bytes()
    for _ in range(TRIALS):
        damaged = mutate(content, dice)
        if damaged == content:
            continue
        path.write_bytes(damaged)
        with pytest.raises(DamagedError) as caught:
            store.read(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
        assert store.verify(path) == str(caught.value)
    path.write_bytes(content)
    assert store.verify(path) == ""


def test_every_bit_of_the_seal_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    store.write(path, example())
    content = path.read_bytes()
    for place in range(len(content) - store.SEAL_SIZE, len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 32]) + content[place + 1 :])  # a -> A
        assert store.verify(path)


def forge(path: Path, change: Callable[[h5py.File], Any]) -> None:
    """A sealed file whose content was changed first: what an accident cannot make, but somebody could."""
    store.write(path, example())
    aside = path.with_suffix(".changed")
    aside.write_bytes(path.read_bytes()[: -store.SEAL_SIZE])
    with h5py.File(aside, "r+") as file:
        change(file)
    content = aside.read_bytes()
    path.write_bytes(content + store.seal(content))


def external_storage(file: h5py.File) -> None:
    size = os.path.getsize("/etc/passwd")
    file.create_dataset("x", shape=(size,), dtype="u1", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)]).make_scale()


def external_link(file: h5py.File) -> None:
    file["x"] = h5py.ExternalLink("/elsewhere/secret.h5", "/x")


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
    layout[:] = h5py.VirtualSource("/elsewhere/secret.h5", "x", shape=(4,))
    file.create_virtual_dataset("x", layout)


def huge(file: h5py.File) -> None:
    file.create_dataset("x", shape=(2**34,), dtype="f8").make_scale()  # 128 GiB, nothing stored


def huge_dimension(file: h5py.File) -> None:
    scale = file.create_dataset("x", shape=(2**34,), dtype="f8")  # a netCDF dimension without coordinates
    scale.make_scale()
    scale.attrs["_Netcdf4Dimid"] = np.int32(9)


def compressed(file: h5py.File) -> None:
    file.create_dataset("x", data=np.zeros(10**7), compression="gzip").make_scale()


def same_data(file: h5py.File) -> None:
    x = file.create_dataset("x", data=np.zeros(10_000))
    x.make_scale()
    for number in range(20):
        file[f"x{number}"] = x


def scale_elsewhere(file: h5py.File) -> None:
    inner = file.create_group("inner").create_dataset("round", data=np.arange(3))
    inner.make_scale()
    file["loss"].dims[0].detach_scale(file["round"])
    file["loss"].dims[0].attach_scale(inner)


def one_word_many_times(file: h5py.File) -> None:
    words = file.create_dataset("x", data=["w" * 50_000, *(str(i) for i in range(999))], dtype=STRING)
    words.make_scale()
    words.attrs["_Netcdf4Dimid"] = np.int32(9)


STRING = h5py.string_dtype()
FORGED: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "external storage": (external_storage, "stored outside of this file"),
    "external link": (external_link, "a link to somewhere else"),
    "soft link": (lambda file: file.__setitem__("x", h5py.SoftLink("/loss")), "a link to somewhere"),
    "link to the root": (lambda file: file.__setitem__("x", h5py.SoftLink("/")), "a link to somewhere else"),
    "virtual": (virtual, "stored outside of this file"),
    "huge": (huge, "declares 137438953472 bytes, but 0 are stored"),
    "huge dimension": (huge_dimension, "declares 137438953472 bytes, but 0 are stored"),
    "compressed": (compressed, "is stored in chunks, expected in one piece"),
    "the same data again": (same_data, "bytes of data, but has"),
    "group": (lambda file: file.create_group("inner"), "'/inner' is a group, expected a dataset"),
    "cycle": (lambda file: file.__setitem__("again", file["/"]), "is a group, expected a dataset"),
    "datatype at the root": (lambda file: file.__setitem__("x", np.dtype("f8")), "is a datatype, expected a dataset"),
    "reference": (scale_elsewhere, "'/inner' is a group, expected a dataset"),
    "axis without scale": (lambda file: file.__setitem__("x", np.zeros(3)), "not named by one scale of this file"),
    "references as data": (
        lambda file: file.create_dataset("x", data=[file.ref], dtype=h5py.ref_dtype),
        "expected numbers or texts",
    ),
    "compound": (lambda file: file.__setitem__("x", np.zeros(2, dtype="i4,f8")), "expected numbers or texts"),
    "no data": (lambda file: file.__setitem__("x", h5py.Empty("f8")), "'/x' has no shape"),
    "scale replaced": (
        lambda file: [file.pop("round"), file.create_dataset("round", data=[1]).make_scale()],
        "not readable as results",
    ),
    "settings a list": (lambda file: file.attrs.__setitem__("settings", "[1]"), "settings must be a JSON object"),
    "settings no JSON": (lambda file: file.attrs.__setitem__("settings", "{"), "not readable as results"),
    "deep JSON": (lambda file: file.attrs.__setitem__("settings", "[" * 20_000), "not readable as results"),
    "provenance a number": (lambda file: file.attrs.__setitem__("provenance", 3), "provenance must be a text"),
    "study an array": (lambda file: file.attrs.__setitem__("study", [1, 2]), "study of '/' must be a text"),
    "study missing": (lambda file: file.attrs.pop("study"), "not readable as results"),
    "format a word": (lambda file: file.attrs.__setitem__("format", "two"), "format must be a number"),
    "units an array": (lambda file: file["loss"].attrs.__setitem__("units", [1, 2]), "units of '/loss' must be a text"),
    "attribute an array": (
        lambda file: file.attrs.__setitem__("radius", np.zeros((2, 2))),
        "must be a text or a number",
    ),
    "numbers scaled": (
        lambda file: file["loss"].attrs.__setitem__("scale_factor", 2.0),
        "attribute scale_factor of '/loss' would change its numbers",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_files_are_refused(tmp_path: Path, name: str) -> None:
    change, text = FORGED[name]
    path = tmp_path / "a.h5"
    forge(path, change)
    with pytest.raises(DamagedError) as caught:
        store.read(path)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_words_that_share_their_letters_do_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    forge(path, one_word_many_times)
    assert store.verify(path) == ""
    content = bytearray(path.read_bytes()[: -store.SEAL_SIZE])
    with h5py.File(path, "r") as file:
        start = file["x"].id.get_offset()
    long_word = bytes(content[start : start + TEXT_SIZE])
    content[start : start + 1000 * TEXT_SIZE] = 1000 * long_word
    path.write_bytes(bytes(content) + store.seal(bytes(content)))
    assert "more letters than the file has bytes" in store.verify(path)


def test_a_file_of_an_earlier_version_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    store.write(path, example())
    path.write_bytes(path.read_bytes()[: -store.SEAL_SIZE])
    assert "made by a version that did not seal them" in store.verify(path)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "a.h5")
    assert "not a file" in store.verify(tmp_path / "a.h5")


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.h5"
    store.write(path, example())
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"a\.h5 could not be written \(No space left on device\)"):
        store.write(path, example())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_surface_of_another_program_cannot_name_other_files(tmp_path: Path) -> None:
    from reports.exports import read_goldstein

    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["xcoordinates"] = np.zeros(2)
        file.create_dataset("ycoordinates", shape=(9,), dtype="u1", external=[("/etc/passwd", 0, 9)])
    with pytest.raises(DamagedError, match="stored outside of this file"):
        read_goldstein(path)
    with h5py.File(path, "w") as file:
        file.create_dataset("xcoordinates", shape=(2**34,), dtype="f8")
    with pytest.raises(DamagedError, match="must be numbers of a surface"):
        read_goldstein(path)


def test_other_programs_read_sealed_files(tmp_path: Path) -> None:
    store.write(tmp_path / "a.h5", example())
    code = f"import xarray; print(float(xarray.open_dataset({str(tmp_path / 'a.h5')!r})['loss'][2, 1]))"
    found = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout == "1.0\n", found.stderr
    assert h5py.File(io.BytesIO((tmp_path / "a.h5").read_bytes()))["loss"][2, 1] == 1.0


@pytest.mark.parametrize("axes", [np.zeros((2, 2)), np.zeros(64), 7, "round"], ids=lambda axes: str(np.shape(axes)))
def test_axes_of_another_type_are_refused_before_hdf5_overwrites_memory(tmp_path: Path, axes: Any) -> None:
    path = tmp_path / "a.h5"
    store.write(path, example())

    def change(file: h5py.File) -> None:
        file["loss"].attrs["DIMENSION_LIST"] = axes

    forge(path, change)
    with pytest.raises(DamagedError, match=r"DIMENSION_LIST of '/loss' must be a list of scales"):
        store.read(path)
