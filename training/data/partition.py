"""Which client holds which example: named, seeded, hashed, and stored without pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from landscape.errors import whole
from landscape.rng import numpy_generator
from training.data import allocation, given
from training.data.dealing import ClientIndices, Ints
from training.data.given import Known
from training.plugins import ExtensionPoint, accept_function, call, takes_anything
from training.settings import MOST_CLASSES, Settings, build, fields, settings_of, values
from training.storage.atomic_files import replace_file
from training.storage.npz import read_npz

MOST_CELLS = 2**30  # clients times classes
BROUGHT = ("labels", "clients", "generator", "known")  # arguments of partitions that are no settings
Setting = float | int | bool | str | tuple[int, ...]

PARTITIONS: dict[str, Callable[..., ClientIndices]] = {
    "iid": allocation.iid,
    "dirichlet_total": allocation.dirichlet_total,
    "dirichlet_per_class": allocation.dirichlet_per_class,
    "dirichlet_by_class": allocation.dirichlet_by_class,
    "shards": allocation.shards,
    "pathological": allocation.pathological,
    "pachinko": allocation.pachinko,
    "natural": given.natural,
    "file": given.file,
}


def accept_scheme(name: str, found: object) -> Callable[..., ClientIndices]:
    """Return a user's own function that deals examples to clients; name: its 'module:name', for messages."""
    return cast(Callable[..., ClientIndices], accept_function("partition", name, found))


SCHEMES = ExtensionPoint("partition", PARTITIONS, accept_scheme)


@dataclass(frozen=True, eq=False)
class Partition:
    """The examples of every client, and how they were drawn. Compare two by their digests.

    name: one of PARTITIONS, or a user's module:function.
    settings: of that partition, all of them.
    seed: what it was drawn with.
    indices: sorted examples of client 0, 1, ...
    labels: of all examples, so that a stored partition can be shown as a table or a picture without the data.
    """

    name: str
    settings: Mapping[str, Setting]
    seed: int
    indices: ClientIndices = field(repr=False)
    labels: Ints = field(repr=False)

    @property
    def sizes(self) -> Ints:
        """Examples per client (clients,)."""
        return self.indices.sizes

    @cached_property
    def histogram(self) -> Ints:
        """Examples per client and class (clients, classes); column c counts label c."""
        classes = int(self.labels.max()) + 1
        if len(self.indices) * classes > MOST_CELLS:
            raise ValueError(
                f"{len(self.indices)} clients times {classes} classes are too many to be counted in a table"
            )
        owner = np.repeat(np.arange(len(self.indices)), self.sizes)
        cells = owner * classes + self.labels[self.indices.flat]
        counts: Ints = np.bincount(cells, minlength=len(self.indices) * classes).reshape(-1, classes)
        return counts

    @cached_property
    def classes_per_client(self) -> Ints:
        """Distinct classes each client holds (clients,)."""
        distinct: Ints = np.count_nonzero(self.histogram, axis=1)
        return distinct

    @cached_property
    def digest(self) -> str:
        """SHA-256 of name, settings, seed, labels and every client's examples, the same on every machine."""
        digest = hashlib.sha256(_header(self.name, self.settings, self.seed).encode())
        for array in (self.sizes, self.indices.flat, self.labels):
            digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()


def partition(
    name: str, labels: ArrayLike, clients: int, *, seed: int, known: Known | None = None, **settings: object
) -> Partition:
    """Deal the examples with these labels to clients, each example to exactly one unless the settings allow others.

    name: one of PARTITIONS, or a user's module:function that takes labels, clients, generator, if it wants known, and
        its settings, and returns the examples of every client.
    labels: class number of every example.
    clients: how many there are.
    seed: the same seed gives the same partition.
    known: what a data set says about its examples, for partitions that go by users or files.
    settings: of the named partition.

    >>> partition("dirichlet_total", [0, 0, 1, 1, 2, 2], 3, seed=0, alpha=0.0).classes_per_client
    array([1, 1, 1])
    """
    checked = check_settings(name, settings)
    classes = _check_labels(labels)
    if whole("clients", clients) > len(classes):
        raise ValueError(
            f"clients: {clients} clients cannot each hold one of {len(classes)} examples; write {len(classes)} or fewer"
        )
    function = SCHEMES.find(name)
    required = {"labels": classes, "clients": int(clients), "generator": numpy_generator(seed, "partition", name)}
    offered = {"known": known or Known()}
    dealt: object = call("partition", name, function, checked, required=required, offered=offered)
    drawn = Partition(name, checked, int(seed), _check_indices(name, dealt, int(clients)).sort(), classes)
    check(drawn, len(classes))
    return drawn


def _check_indices(name: str, dealt: object, clients: int) -> ClientIndices:
    """What a partition returned as one array with bounds, or raise ValueError; users may return lists."""
    if not isinstance(dealt, ClientIndices):
        try:
            parts = [np.asarray(own) for own in dealt]  # type: ignore[attr-defined]
            plain = all(own.ndim == 1 and (own.dtype.kind in "iu" or not own.size) for own in parts)
        except (TypeError, ValueError):
            plain = False
        if not plain:
            raise ValueError(
                f"partition '{name}' must return the examples of every client, one list of whole numbers for each; got "
                f"{type(dealt).__name__}"
            )
        dealt = ClientIndices.of([own.astype(np.int64) for own in parts])
    if len(dealt) != clients:
        raise ValueError(f"partition '{name}' made {len(dealt)} clients, expected {clients} (partition.clients)")
    return dealt


def check_settings(name: str, given: Mapping[str, object]) -> dict[str, Setting]:
    """Check a partition's name and settings; return all settings, with the defaults of those that are not given.

    name: one of PARTITIONS, or a user's module:function; if it takes any keyword argument, nothing can be checked.
    given: values by the names of the settings; they may be NumPy numbers and arrays.
    """
    plain = {
        key: value.tolist() if isinstance(value, np.ndarray | np.generic) else value for key, value in given.items()
    }
    found = (
        plain
        if takes_anything(SCHEMES.find(name))
        else values(build(settings_class(name), plain, f"partition '{name}'"))
    )
    return {key: tuple(value) if isinstance(value, list) else cast(Setting, value) for key, value in found.items()}


def default_settings(name: str) -> dict[str, Setting]:
    """Return the settings of a partition that need not be given, with their values.

    name: one of PARTITIONS, or a user's module:function.
    """
    if takes_anything(SCHEMES.find(name)):
        return {}
    return {key: field.get_default() for key, field in fields(settings_class(name)).items() if not field.is_required()}


def settings_class(name: str) -> type[Settings]:
    """Return the settings of a partition as a class, made from its function's keyword arguments.

    name: one of PARTITIONS.
    """
    return settings_of(SCHEMES.find(name), exclude=BROUGHT)


def check(partition: Partition, total: int) -> None:
    """Raise ValueError unless every example belongs to exactly one client and every client has at least one.

    partition: to check; its settings allow_unused and allow_repeated allow examples of no client and of several.
    total: the number of examples.
    """
    if (partition.sizes == 0).any():
        raise ValueError(f"partition '{partition.name}': client {int(np.argmin(partition.sizes))} has no examples")
    flat = partition.indices.flat
    if flat.min() < 0 or flat.max() >= total:
        outside = flat[(flat < 0) | (flat >= total)][0]
        raise ValueError(f"partition '{partition.name}': example {outside} does not exist, there are {total}")
    uses = np.bincount(flat, minlength=total)
    unused, repeated = int(np.count_nonzero(uses == 0)), int(np.count_nonzero(uses > 1))
    hints = []
    if unused and not partition.settings.get("allow_unused"):
        first = int(np.argmax(uses == 0))
        others = f", as do {unused - 1:,} others" if unused > 1 else ""
        hints.append(f"example {first} belongs to no client{others} (allow_unused)")
    if repeated and not partition.settings.get("allow_repeated"):
        first = int(np.argmax(uses > 1))
        others = f", as are {repeated - 1:,} others" if repeated > 1 else ""
        hints.append(f"example {first} is there several times{others} (allow_repeated)")
    if hints:
        where = f" ({partition.settings['path']})" if "path" in partition.settings else ""
        raise ValueError(
            f"partition '{partition.name}'{where} is not disjoint and complete: {'; '.join(hints)}. Given partitions "
            "have the settings in parentheses to allow that"
        )


def split_client(indices: Ints, *, fraction: float = 0.7, seed: int, client: int) -> tuple[Ints, Ints]:
    """Split one client's examples at random into training and test examples, at least one of each.

    indices: the client's examples.
    fraction: of them that are for training.
    seed: of the run.
    client: its number; seed and client decide the split.
    Returns the sorted indices for training and for testing.

    FedFSA pools the official training and test sets, partitions the pool, then splits every client 70/30.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction of training examples must lie between 0 and 1, got {fraction}")
    if len(indices) < 2:
        raise ValueError(f"client {client} has {len(indices)} example(s); a train/test split needs at least 2")
    shuffled = numpy_generator(seed, "client split", int(client)).permutation(np.asarray(indices, dtype=np.int64))
    train = min(max(round(fraction * len(shuffled)), 1), len(shuffled) - 1)
    return np.sort(shuffled[:train]), np.sort(shuffled[train:])


def save(partition: Partition, path: str | os.PathLike[str]) -> None:
    """Write a partition as .npz; after an interruption the file is complete or absent.

    partition: to write.
    path: of the file.
    """
    with replace_file(Path(path)) as temporary, open(temporary, "wb") as file:
        np.savez(
            file,
            header=np.array(_header(partition.name, partition.settings, partition.seed)),
            digest=np.array(partition.digest),
            sizes=partition.sizes,
            indices=partition.indices.flat,
            labels=partition.labels,
        )


def load(path: str | os.PathLike[str]) -> Partition:
    """Read a stored partition and verify its digest.

    path: of the file. ValueError if it is damaged or something else.
    """
    try:
        stored, expected = _read_stored(read_npz(Path(path)))
        same = stored.digest == expected
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path} is not a partition file, or is damaged ({reason}); draw it again") from error
    if not same:
        raise ValueError(
            f"{path}: the digest does not match (stored {expected[:12]}, found {stored.digest[:12]}); the file was "
            "changed or damaged, draw the partition again"
        )
    check(stored, len(stored.labels))
    return stored


def _read_stored(arrays: Mapping[str, np.ndarray]) -> tuple[Partition, str]:
    """Return a partition as its file describes it, and the digest that it should have."""
    header = json.loads(str(arrays["header"]))
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in header["settings"].items()}
    sizes, indices = arrays["sizes"], arrays["indices"]
    for name, array in (("sizes", sizes), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu" or (array.size and array.min() < 0):
            raise ValueError(f"its {name} must be a vector of whole numbers from 0 on")
    if not len(sizes) or sizes.max() > len(indices) or sizes.sum() != len(indices):
        raise ValueError("the sizes of its clients do not add up to its examples")
    own = ClientIndices.cut(indices.astype(np.int64), sizes.astype(np.int64)).sort()
    labels = _check_labels(arrays["labels"])
    return Partition(str(header["name"]), settings, int(header["seed"]), own, labels), str(arrays["digest"])


def _header(name: str, settings: Mapping[str, Setting], seed: int) -> str:
    return json.dumps({"format": "partition 1", "name": name, "settings": dict(settings), "seed": seed}, sort_keys=True)


def _check_labels(labels: ArrayLike) -> Ints:
    """Return class numbers as a read-only vector, or raise ValueError."""
    given = np.asarray(labels)
    if given.ndim != 1 or given.size == 0:
        raise ValueError(f"labels must be a vector with one class number per example, got shape {given.shape}")
    if given.dtype.kind not in "iu" or given.min() < 0:
        raise ValueError(f"labels must be whole numbers 0, 1, ..., got {given.dtype} with smallest {given.min()}")
    if given.max() >= MOST_CLASSES:
        raise ValueError(f"labels must be class numbers below {MOST_CLASSES:,}, got {given.max()}")
    classes = given.astype(np.int64)
    classes.setflags(write=False)
    return classes
