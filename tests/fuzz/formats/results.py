"""HDF5: answers of studies, pieces of unfinished ones, and surfaces that others have made."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from analysis import runner, store
from reports import exports
from tests.fuzz.cases import Case, Reader
from tests.fuzz.formats.common import FINISHED, MANY, check_run, report_run
from tests.fuzz.mutations import spoil_bytes
from tests.fuzz.workspace import planned

FILE = f"{FINISHED}/analysis/curvature/default.h5"
SURFACE = "surface.h5"


class Results:
    """Raw bytes, and files edited with h5py and sealed again: other types, links, outside storage, absurd sizes."""

    def __init__(self, folder: Path) -> None:
        self.sound, self.surface = (folder / FILE).read_bytes(), (folder / SURFACE).read_bytes()
        self.piece = runner.find_piece_file(*planned(folder)).read_bytes()
        self.place = str(runner.find_piece_file(*planned(folder)).relative_to(folder))
        self.readers = {
            "piece": Reader(read_piece),
            "read": Reader(lambda folder: store.read(folder / FILE)),
            "verify": Reader(verify),
            "check": Reader(check_run, lines=MANY),
            "report": Reader(report_run, lines=MANY),
            "import": Reader(lambda folder: exports.import_goldstein(folder / SURFACE), protected=False),
        }

    def case(self, rng: random.Random) -> Case:
        if rng.random() < 0.03:  # each takes a process
            return Case("import", {SURFACE: self._surface(rng)})
        if rng.random() < 0.1:
            return self._spoil_piece(rng)
        reader = rng.choice(("read", "read", "verify", "check", "report"))
        if rng.random() < 0.4:
            return Case(reader, {FILE: spoil_bytes(rng, self.sound, [self.surface])})
        content = edit(rng, self.sound[: -store.SEAL_SIZE])
        return Case(reader, {FILE: content + store.seal(content)}, forged=True)

    def _spoil_piece(self, rng: random.Random) -> Case:
        if rng.random() < 0.5:
            return Case("piece", {self.place: spoil_bytes(rng, self.piece, [self.sound])})
        content = edit(rng, self.piece[: -store.SEAL_SIZE])
        return Case("piece", {self.place: content + store.seal(content)}, forged=True)

    def _surface(self, rng: random.Random) -> bytes:
        return edit(rng, self.surface) if rng.random() < 0.7 else spoil_bytes(rng, self.surface, [self.sound])


def verify(folder: Path) -> str:
    """What `check` asks."""
    found = store.verify(folder / FILE)
    if found:
        raise ValueError(found)
    return found


def read_piece(folder: Path) -> xr.Dataset:
    """A piece of a study that was interrupted; None, which means that it is measured again, counts as refused."""
    found = runner.load_piece(*planned(folder))
    if found is None:
        raise ValueError(f"{runner.find_piece_file(*planned(folder))}: measured again")
    return found


def edit(rng: random.Random, data: bytes) -> bytes:
    """A file that HDF5 has written, with one or two things in it that should not be there."""
    buffer = io.BytesIO(data)
    with h5py.File(buffer, "r+") as file:
        for _ in range(rng.choice((1, 1, 2))):
            try:
                rng.choice(EDITS)(rng, file)
            except (ValueError, OSError, RuntimeError, LookupError, TypeError):
                continue  # not possible after the first edit
    return buffer.getvalue()


def _groups(file: h5py.File) -> list[h5py.Group]:
    return [file, *(part for part in file.values() if isinstance(part, h5py.Group))]


def _datasets(file: h5py.File) -> list[h5py.Dataset]:
    return [part for group in _groups(file) for part in group.values() if isinstance(part, h5py.Dataset)]


def _owner(rng: random.Random, file: h5py.File) -> Any:
    return rng.choice([*_groups(file), *_datasets(file)])


def change_attribute(rng: random.Random, file: h5py.File) -> None:
    owner = _owner(rng, file)
    name = rng.choice([*owner.attrs] or ["format"])
    if rng.random() < 0.2:
        del owner.attrs[name]
        return
    values: tuple[Any, ...] = (
        0,
        -1,
        99,
        2.5,
        "",
        "x" * 20_000,
        "[" * 20_000,
        "[1, 2]",
        "null",
        "{",
        '{"a": NaN}',
        b"\xff\xfe",
        np.arange(3),
        np.zeros((2, 2)),
        np.bytes_(b"\xff"),
        h5py.Empty("f8"),
        h5py.Empty("S1"),
        np.asarray([("a", 1)], dtype=[("x", "S3"), ("y", "<i4")]),
        file.ref,
        np.uint64(2**64 - 1),
        np.bool_(True),
    )
    owner.attrs[name] = rng.choice(values)


def add_attribute(rng: random.Random, file: h5py.File) -> None:
    owner = _owner(rng, file)
    name = rng.choice(("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "x", "é", "a/b"))
    owner.attrs[name] = rng.choice(("DIMENSION_SCALE", 7, np.arange(4), file.ref, "x"))


def replace_dataset(rng: random.Random, file: h5py.File) -> None:
    """Other numbers, another type, another shape under the same name."""
    dataset = rng.choice(_datasets(file))
    group, name = dataset.parent, dataset.name.rpartition("/")[2]
    values: tuple[Any, ...] = (
        np.zeros(0),
        np.float64(1.0),
        np.zeros((2, 3, 4)),
        np.arange(7, dtype=np.int16),
        np.asarray([b"\xff\xfe", b"a"]),
        np.asarray([("a", 1)], dtype=[("x", "S3"), ("y", "<i4")]),
        np.asarray([1 + 2j]),
        np.full(3, np.nan),
        h5py.Empty("f8"),
        np.asarray([True, False]),
        np.arange(min(dataset.size or 1, 1000), dtype=np.float16),
    )
    del group[name]
    group[name] = rng.choice(values)


def add_words(rng: random.Random, file: h5py.File) -> None:
    """Words of any length, or that are no UTF-8."""
    group, name = rng.choice(_groups(file)), rng.choice(("words", "note", "model", "round"))
    if name in group:
        del group[name]
    words = rng.choice(([b"\xff\xfe"], [b""] * 5, [b"x" * 100_000] * 3, [b"a\x00b"], [b"server", b"mean"]))
    group.create_dataset(name, data=words, dtype=h5py.string_dtype(rng.choice(("utf-8", "ascii"))))


def declare_more(rng: random.Random, file: h5py.File) -> None:
    """A dataset far larger than the file: stored in chunks, packed, or not at all."""
    group = rng.choice(_groups(file))
    shape = rng.choice(((2**34,), (2**20, 2**20), (10**6,), (2**62,)))
    options = rng.choice(({}, {"chunks": True}, {"chunks": (1,) * len(shape)}, {"compression": "gzip"}))
    name = rng.choice(("huge", "round", "eigenvalue", "xcoordinates", "train_loss"))
    if name in group:
        del group[name]
    huge = group.create_dataset(name, shape=shape, dtype=rng.choice(("f8", "i1", h5py.string_dtype())), **options)
    if rng.random() < 0.3:
        huge.make_scale("huge")


def link(rng: random.Random, file: h5py.File) -> None:
    """Links to elsewhere, to nowhere, and in circles."""
    group = rng.choice(_groups(file))
    name = rng.choice([*group, "new"])
    targets: tuple[Callable[[], Any], ...] = (
        lambda: h5py.SoftLink("/nowhere"),
        lambda: h5py.SoftLink("/"),
        lambda: h5py.SoftLink(group.name),
        lambda: h5py.ExternalLink("/etc/passwd", "/"),
        lambda: h5py.ExternalLink("other.h5", "/a"),
        lambda: file["/"],
        lambda: group,
    )
    target = rng.choice(targets)()
    if name in group:
        del group[name]
    group[name] = target


def store_outside(rng: random.Random, file: h5py.File) -> None:
    """Data that lie in another file, or are composed of several."""
    group = rng.choice(_groups(file))
    name = rng.choice(("outside", "round", "eigenvalue", "xcoordinates", "train_loss"))
    if name in group:
        del group[name]
    if rng.random() < 0.5:
        group.create_dataset(name, shape=(100,), dtype="u1", external=[("/etc/passwd", 0, 100)])
        return
    layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", shape=(4,))
    group.create_virtual_dataset(name, layout)


def add_group(rng: random.Random, file: h5py.File) -> None:
    group = rng.choice(_groups(file))
    for depth in range(rng.choice((1, 1, 3, 200))):
        group = group.create_group(rng.choice(("a", "b", "é", "..", "x" * 300)) + str(depth))


def add_dataset(rng: random.Random, file: h5py.File) -> None:
    group = rng.choice(_groups(file))
    group[rng.choice(("new", "é", "a b", "[red]", "x" * 300))] = rng.choice((np.arange(3), np.float64(1), "word", b"b"))


def add_type(rng: random.Random, file: h5py.File) -> None:
    rng.choice(_groups(file))["type"] = np.dtype(rng.choice(("f8", "i4", "S3")))


def rewire_scales(rng: random.Random, file: h5py.File) -> None:
    """Axes without names, with two, or named by datasets of other groups."""
    datasets = _datasets(file)
    dataset, other = rng.choice(datasets), rng.choice(datasets)
    if dataset.is_scale:
        dataset.make_scale(rng.choice(("", "x", "a/b")))
        return
    axis = dataset.dims[rng.randrange(len(dataset.dims))]
    if rng.random() < 0.5 and len(axis):
        axis.detach_scale(axis[0])
    if rng.random() < 0.7:
        axis.attach_scale(other)


def resize_in_place(rng: random.Random, file: h5py.File) -> None:
    """The same values, packed and in chunks."""
    dataset = rng.choice([one for one in _datasets(file) if one.shape is not None and one.size < 1000])
    group, name, values = dataset.parent, dataset.name.rpartition("/")[2], dataset[()]
    del group[name]
    group.create_dataset(name, data=values, chunks=True, maxshape=(None,) * np.ndim(values), compression="gzip")


def move(rng: random.Random, file: h5py.File) -> None:
    dataset, group = rng.choice(_datasets(file)), rng.choice(_groups(file))
    file.move(dataset.name, f"{group.name}/{rng.choice(('moved', 'round', 'rank'))}")


EDITS = (
    change_attribute,
    change_attribute,
    add_attribute,
    replace_dataset,
    replace_dataset,
    add_words,
    declare_more,
    link,
    store_outside,
    add_group,
    add_dataset,
    add_type,
    rewire_scales,
    resize_in_place,
    move,
)
