"""Which client holds which example: named, seeded, hashed, and stored without pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from landscape.errors import choose, whole
from landscape.rng import numpy_generator
from training.data import allocation
from training.data.dealing import Ints, cut
from training.settings import MOST_CLASSES, Settings, build, fields, settings_of, values
from training.storage.atomic_files import replace_file
from training.storage.npz import read_npz

MOST_CELLS = 2**30  # clients times classes
Setting = float | int | bool | tuple[int, ...]

PARTITIONS: dict[str, Callable[..., list[Ints]]] = {
    "iid": allocation.iid,
    "dirichlet_total": allocation.dirichlet_total,
    "dirichlet_per_class": allocation.dirichlet_per_class,
    "dirichlet_by_class": allocation.dirichlet_by_class,
    "shards": allocation.shards,
    "pathological": allocation.pathological,
    "pachinko": allocation.pachinko,
}


@dataclass(frozen=True, eq=False)
class Partition:
    """The examples of every client, and how they were drawn. Compare two by their digests.

    name: one of PARTITIONS.
    settings: of that partition, all of them.
    seed: what it was drawn with.
    indices: sorted examples of client 0, 1, ...
    labels: of all examples, so that a stored partition can be shown as a table or a picture without the data.
    """

    name: str
    settings: Mapping[str, Setting]
    seed: int
    indices: tuple[Ints, ...] = field(repr=False)
    labels: Ints = field(repr=False)

    @cached_property
    def sizes(self) -> Ints:
        """Examples per client (clients,)."""
        return np.fromiter((len(own) for own in self.indices), dtype=np.int64, count=len(self.indices))

    @cached_property
    def histogram(self) -> Ints:
        """Examples per client and class (clients, classes); column c counts label c."""
        classes = int(self.labels.max()) + 1
        if len(self.indices) * classes > MOST_CELLS:
            raise ValueError(
                f"{len(self.indices)} clients times {classes} classes are too many to be counted in a table"
            )
        owner = np.repeat(np.arange(len(self.indices)), self.sizes)
        cells = owner * classes + self.labels[np.concatenate(self.indices)]
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
        for array in (self.sizes, np.concatenate(self.indices), self.labels):
            digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()


def partition(name: str, labels: ArrayLike, clients: int, *, seed: int, **settings: object) -> Partition:
    """Deal the examples with these labels to clients, each example to exactly one.

    name: one of PARTITIONS.
    labels: class number of every example.
    clients: how many there are.
    seed: the same seed gives the same partition.
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
    indices = PARTITIONS[name](classes, int(clients), numpy_generator(seed, "partition", name), **checked)
    drawn = Partition(name, checked, int(seed), _sort_indices(indices), classes)
    check(drawn, len(classes))
    return drawn


def check_settings(name: str, given: Mapping[str, object]) -> dict[str, Setting]:
    """Check a partition's name and settings; return all settings, with the defaults of those that are not given.

    name: one of PARTITIONS.
    given: values by the names of the settings; they may be NumPy numbers and arrays.
    """
    plain = {
        key: value.tolist() if isinstance(value, np.ndarray | np.generic) else value for key, value in given.items()
    }
    return values(build(settings_class(name), plain, f"partition '{name}'"))


def default_settings(name: str) -> dict[str, Setting]:
    """Return the settings of a partition that need not be given, with their values.

    name: one of PARTITIONS.
    """
    return {key: field.get_default() for key, field in fields(settings_class(name)).items() if not field.is_required()}


def settings_class(name: str) -> type[Settings]:
    """Return the settings of a partition as a class, made from its function's keyword arguments.

    name: one of PARTITIONS.
    """
    return settings_of(PARTITIONS[choose("partition", name, PARTITIONS)], exclude=("labels", "clients", "generator"))


def check(partition: Partition, total: int) -> None:
    """Raise ValueError unless every example belongs to exactly one client and every client has at least one.

    partition: to check.
    total: the number of examples.
    """
    if (partition.sizes == 0).any():
        raise ValueError(f"partition '{partition.name}': client {int(np.argmin(partition.sizes))} has no examples")
    flat = np.concatenate(partition.indices)
    if flat.min() < 0 or flat.max() >= total:
        outside = flat[(flat < 0) | (flat >= total)][0]
        raise ValueError(f"partition '{partition.name}': example {outside} does not exist, there are {total}")
    uses = np.bincount(flat, minlength=total)
    if (uses != 1).any():
        example = int(np.argmax(uses != 1))
        raise ValueError(
            f"partition '{partition.name}' is not disjoint and complete: example {example} belongs to "
            f"{uses[example]} clients, and so do {np.count_nonzero(uses != 1) - 1} others to none or several"
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
            indices=np.concatenate(partition.indices),
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
    own, labels = _sort_indices(cut(indices, sizes)), _check_labels(arrays["labels"])
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


def _sort_indices(indices: Sequence[Ints]) -> tuple[Ints, ...]:
    """Sort each client's examples: read-only views into one array, so that a million clients stay cheap."""
    sizes = np.fromiter((len(own) for own in indices), dtype=np.int64, count=len(indices))
    flat = np.concatenate(indices).astype(np.int64)
    flat = flat[np.lexsort((flat, np.repeat(np.arange(len(indices)), sizes)))]
    flat.setflags(write=False)
    return tuple(cut(flat, sizes))
