"""Partitions that are given: by the users of the data, or by a published file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from training.data.dealing import ClientIndices, Ints
from training.data.formats.files import list_some
from training.data.formats.splits import User, order_users, read_csv, read_json, read_json_folder, read_numbers

if TYPE_CHECKING:
    from training.data.stores import Groups  # which imports torch, and stored partitions are shown without it

Unused = Annotated[bool, Field(description="allow examples that belong to no client")]
Repeated = Annotated[bool, Field(description="allow examples that are there several times")]
COLUMNS = (("user_id", "image_id", "class"), ("user", "path", "label"))  # of a CSV file: Hsu et al.'s, and plain ones


@dataclass(frozen=True, eq=False)
class Known:
    """What a data set says about its training examples beside their labels.

    users: who each belongs to.
    keys: the file or name of each, as published splits cite it.
    root: the folder of the data.
    """

    users: Groups | None = None
    keys: Sequence[str] | None = None
    root: Path | None = None


def natural(
    labels: Ints, clients: int, generator: np.random.Generator, *, known: Known, allow_unused: Unused = False
) -> ClientIndices:
    """One client for each user of the data: a writer, a role, a city, the author of photographs.

    known: its users are the clients, in the order of their names.
    allow_unused: with fewer clients than users, draw so many users at random and leave the others out.
    """
    if known.users is None:
        raise ValueError("partition natural needs data that name the user of every example; these do not")
    users, index = len(known.users.names), known.users.index
    if clients > users or (clients < users and not allow_unused):
        choice = ", or allow_unused = true to draw some of them" if clients < users else ""
        raise ValueError(
            f"partition natural: the data have {users:,} users, not {clients:,}; "
            f"write partition.clients = {users}{choice}"
        )
    chosen = np.sort(generator.permutation(users)[:clients])
    order, bounds = np.argsort(index, kind="stable"), np.cumsum(np.bincount(index, minlength=users))
    if clients == users:
        return ClientIndices.cut(order, np.bincount(index, minlength=users))
    return ClientIndices.of([order[bounds[user - 1] if user else 0 : bounds[user]] for user in chosen])


def file(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    known: Known,
    path: Annotated[str, Field(description="JSON or CSV file, or folder of JSON files; may be relative to data.root")],
    allow_unused: Unused = False,
    allow_repeated: Repeated = False,
) -> ClientIndices:
    """Clients as a file lists them, with the names or numbers of their examples (FedSAM, FedGloSS, Hsu et al. 2020).

    known: the names of the examples, and the folder of the data.
    path: JSON {users, user_data: {user: {x: [...], y: [...]}}}, where x holds names or numbers of examples and y their
        labels; a folder of such files; JSON [[0, 1], [2, 3]], the examples of every client; or CSV with the columns
        user_id, image_id, class (or user, path, label).
    allow_unused: whether examples may be missing in the file.
    allow_repeated: whether an example may be there several times.

    Clients are in the order of their names, by number where these are numbers.
    """
    place = _find(path, known.root)
    users = _read(place)
    if len(users) != clients:
        raise ValueError(f"{place} has {len(users):,} clients, not {clients:,}; write partition.clients = {len(users)}")
    find = _Finder(place, labels, known.keys)
    return ClientIndices.of([find.locate(*users[user]) for user in order_users(users)])


def _find(path: str, root: Path | None) -> Path:
    """Find the file: relative to the folder of the data, or to where the command is run."""
    for place in ((root or Path()) / path, Path(path)):
        if place.exists():
            return place
    raise ValueError(f"partition file: there is no {path}, neither in {root or '.'} nor in {Path.cwd()}")


def _read(place: Path) -> dict[str, User]:
    """Read what each user holds, and the labels."""
    if place.is_dir():
        return read_json_folder(place)
    if place.suffix != ".csv":
        return read_json(place)
    try:
        names, keys, cells = read_csv(place, COLUMNS[0])
    except ValueError:
        names, keys, cells = read_csv(place, COLUMNS[1])
    found: dict[str, User] = {}
    for name, key, label in zip(names, keys, read_numbers(place, "class", cells), strict=True):
        own = found.setdefault(name, ([], []))
        own[0].append(key)
        own[1].append(label)
    return found


class _Finder:
    """Finds examples by name or number, and label: CIFAR-100 has two pairs of images of the same name."""

    def __init__(self, place: Path, labels: Ints, keys: Sequence[str] | None) -> None:
        self.place, self.labels = place, labels
        self._by_key: dict[str, list[int]] = {}
        for number, key in enumerate(keys or ()):
            self._by_key.setdefault(key, []).append(number)

    def locate(self, x: Sequence[Any], y: Sequence[Any]) -> Ints:
        """Find the examples of one user.

        x: names or numbers of examples.
        y: their labels; anything but whole numbers is not compared.
        """
        found, unknown = [], []
        for key, label in zip(x, y, strict=True):
            fits = [
                number for number in self._candidates(key) if type(label) is not int or self.labels[number] == label
            ]
            if fits:
                found.append(fits[0])
            else:
                unknown.append(f"{key} (label {label})" if type(label) is int else str(key))
        if unknown:
            raise ValueError(
                f"{self.place} names examples that the data set does not have, or not with these labels: "
                f"{list_some(unknown)[:300]}"
            )
        return np.asarray(found, np.int64)

    def _candidates(self, key: object) -> Sequence[int]:
        if isinstance(key, str) and key in self._by_key:
            return self._by_key[key]
        number = int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 12 else key
        if type(number) is int and 0 <= number < len(self.labels):
            return [number]
        return []
