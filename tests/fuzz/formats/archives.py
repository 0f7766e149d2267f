"""npz: partitions, and data of a user's own."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.fuzz.cases import Case, Reader
from tests.fuzz.formats.common import FINISHED, MANY, check_run, report_run
from tests.fuzz.mutations import spoil_bytes
from training.data import own_data, partition

PARTITION = f"{FINISHED}/partition.npz"
DESCRIPTIONS = ("|O", "<f8", "<i8", ">i4", "|S5", "<U9", "<M8[D]", "|V9", "<c16", "|b1", "<f2", "x", "[('a', '<i4')]")
SHAPES = (
    "()",
    "(0,)",
    "(2**40,)",
    "(1099511627776,)",
    "(-1,)",
    "(4, 4, 4)",
    "('a',)",
    "(9999999999999999999999,)",
    "6",
)


class Archives:
    """Archives with members swapped, dropped or doubled, lying headers, objects, words and absurd numbers."""

    def __init__(self, folder: Path) -> None:
        self.partition, self.data = (folder / PARTITION).read_bytes(), (folder / "own.npz").read_bytes()
        self.readers = {
            "partition": Reader(lambda folder: _parts(partition.load(folder / PARTITION))),
            "check": Reader(check_run, lines=MANY),
            "report": Reader(report_run, protected=False, lines=MANY),
            "own": Reader(read_own, protected=False),
        }

    def case(self, rng: random.Random) -> Case:
        if rng.random() < 0.4:
            return Case("own", {"own.npz": self._spoil(rng, self.data)})
        reader = rng.choice(("partition", "partition", "check", "report"))
        return Case(reader, {PARTITION: self._spoil(rng, self.partition)})

    def _spoil(self, rng: random.Random, data: bytes) -> bytes:
        if rng.random() < 0.3:
            return spoil_bytes(rng, data, [self.partition, self.data])
        members = read_members(data)
        for _ in range(rng.choice((1, 1, 2))):
            rng.choice(MEMBERS)(rng, members)
        packed = write_members(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
        return lie_about_sizes(rng, packed) if rng.random() < 0.15 else packed


def read_members(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def write_members(members: list[tuple[str, bytes]], method: int) -> bytes:
    """An archive; two members may have the same name, so it is not zipfile's."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.NameToInfo.pop(name, None)  # zipfile warns of a second one
            archive.writestr(info, data)
    return buffer.getvalue()


def lie_about_sizes(rng: random.Random, data: bytes) -> bytes:
    """Another size in an entry of the archive's directory."""
    place = data.find(b"PK\x01\x02")
    offset = rng.choice((20, 24, 42, 10))  # packed size, size, start, method
    word = struct.pack("<I", rng.choice((0, 1, 2**31, 2**32 - 1, 99)))
    return data[: place + offset] + word + data[place + offset + 4 :] if place >= 0 else data


Members = list[tuple[str, bytes]]


def _array(values: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


def swap(rng: random.Random, members: Members) -> None:
    i, j = rng.randrange(len(members)), rng.randrange(len(members))
    members[i], members[j] = (members[i][0], members[j][1]), (members[j][0], members[i][1])


def drop(rng: random.Random, members: Members) -> None:
    if len(members) > 1:
        members.pop(rng.randrange(len(members)))


def double(rng: random.Random, members: Members) -> None:
    name, _ = rng.choice(members)
    members.append((name, rng.choice(members)[1]))


def rename(rng: random.Random, members: Members) -> None:
    place = rng.randrange(len(members))
    name = rng.choice(("x", "../x.npy", "/x.npy", "x_train.npy", "digest.npy", "a/b.npy", "", "x_train", "é.npy"))
    members[place] = (name, members[place][1])


def lie(rng: random.Random, members: Members) -> None:
    """Another header before the same numbers."""
    place = rng.randrange(len(members))
    name, data = members[place]
    length = int.from_bytes(data[8:10], "little")
    order = rng.choice(("True", "1", "None"))
    text = rng.choice(
        (
            f"{{'descr': {rng.choice(DESCRIPTIONS)!r}, 'fortran_order': False, 'shape': (6,), }}",
            f"{{'descr': '<i8', 'fortran_order': {order}, 'shape': {rng.choice(SHAPES)}, }}",
            "{'descr': " + "[" * 3000 + "]" * 3000 + ", 'fortran_order': False, 'shape': (), }",
            "{'descr': '<i8'}",
            "__import__('os').getcwd()",
            " " * 70_000,
        )
    ).encode()
    version = rng.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text) % 65536)
    members[place] = (name, b"\x93NUMPY" + version + size + text + data[10 + length :])


def replace(rng: random.Random, members: Members) -> None:
    """A valid array of another kind."""
    place = rng.randrange(len(members))
    arrays: tuple[Callable[[], Any], ...] = (
        lambda: np.asarray(["a", "b", "c"]),
        lambda: np.asarray([0, 1, 2**40]),
        lambda: np.asarray([-1, 0, 1]),
        lambda: np.asarray([0.5, np.nan, np.inf]),
        lambda: np.asarray(7),
        lambda: np.zeros((3, 0)),
        lambda: np.zeros(0, dtype=np.int64),
        lambda: np.asarray([{"a": 1}, None], dtype=object),
        lambda: np.asarray([2**63], dtype=np.uint64),
        lambda: np.asarray(["2024-01-01"], dtype="M8[D]"),
        lambda: np.zeros(3, dtype=[("a", "<i4"), ("b", "<f8")]),
        lambda: np.asarray([True, False]),
        lambda: np.asarray([1 + 2j]),
        lambda: np.zeros((2,) * 20, dtype=np.uint8),
        lambda: np.arange(6, dtype=">i2"),
        lambda: np.asarray(
            rng.choice(('{"format": "partition 1"}', "[]", "{", '{"name": 1, "settings": 2, "seed": "x"}'))
        ),
    )
    members[place] = (members[place][0], _array(rng.choice(arrays)()))


def spoil_member(rng: random.Random, members: Members) -> None:
    """Other bytes under a checksum that fits them."""
    place = rng.randrange(len(members))
    members[place] = (members[place][0], spoil_bytes(rng, members[place][1]))


MEMBERS = (swap, drop, double, rename, lie, lie, replace, replace, spoil_member, spoil_member)


def _parts(found: partition.Partition) -> Any:
    return found.name, dict(found.settings), found.seed, found.indices, found.labels, found.histogram


def read_own(folder: Path) -> Any:
    """Data of a user's own, to the point where the network is built."""
    splits = own_data.read_data(str(folder / "own.npz"), None, torch.float32)
    return splits, 1 + max(int(labels.max()) for _, labels in splits.values())
