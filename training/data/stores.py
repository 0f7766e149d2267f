"""Examples that are read when they are asked for, and names for every example."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from training.data.dealing import Ints


@runtime_checkable
class Store(Protocol):
    """Examples that are read when they are asked for: mapped from a file, or decoded from many.

    Another process makes its own store by calling the data set's function again, with the same settings.
    """

    @property
    def shape(self) -> Sequence[int]:
        """The number of examples, followed by the shape of one."""

    @property
    def dtype(self) -> torch.dtype:
        """Of what is read."""

    @property
    def digest(self) -> str:
        """SHA-256 of what identifies the examples: names, sizes and the split, not the pixels."""

    def __len__(self) -> int:
        """The number of examples."""

    def __getitem__(self, positions: Tensor) -> Tensor:
        """Read examples into a new tensor, on the CPU.

        positions: (n,) int64 in any order; an example may be asked for more than once.
        """


Examples = Tensor | Store


@dataclass(frozen=True, eq=False)
class Groups:
    """A name for every example: its user, or its domain.

    >>> groups = Groups.of(["ann", "cy", "ann", "bob"])
    >>> groups.names, groups.index.tolist()
    (('ann', 'bob', 'cy'), [0, 2, 0, 1])
    """

    names: tuple[str, ...]  # in increasing order, as strings
    index: Ints  # (examples,) the number of each example's name

    @classmethod
    def of(cls, name_of_each: Sequence[str]) -> Groups:
        """Number the names.

        name_of_each: the name of every example.
        """
        names, index = np.unique(np.asarray(name_of_each, dtype=np.str_), return_inverse=True)
        return cls(tuple(names.tolist()), index.astype(np.int64))

    def __len__(self) -> int:
        return len(self.index)

    def find(self, number: int) -> Ints:
        """Return the examples of one name in increasing order.

        number: of the name.
        """
        return np.flatnonzero(self.index == number)


def join(first: Examples, second: Examples) -> Examples:
    """Put the examples of two into one: first those of the one, then those of the other.

    first, second: of the same shape and dtype; two tensors give a tensor, else nothing is read.
    """
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return torch.cat([first, second])
    return _Joined(first, second)


def take_none(examples: Examples) -> Tensor:
    """Return no examples, of the same shape and dtype.

    examples: whose shape.
    """
    return torch.empty((0, *examples.shape[1:]), dtype=examples.dtype)


@dataclass(frozen=True, eq=False)
class _Joined:
    """A store of the examples of two."""

    first: Examples
    second: Examples

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.first.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self.first.dtype

    @property
    def digest(self) -> str:
        total = hashlib.sha256()
        for part in (self.first, self.second):
            update_digest(total, part)
        return total.hexdigest()

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, positions: Tensor) -> Tensor:
        beyond = positions >= len(self.first)
        found = torch.empty((len(positions), *self.shape[1:]), dtype=self.dtype)
        found[~beyond] = self.first[positions[~beyond]]
        found[beyond] = self.second[positions[beyond] - len(self.first)]
        return found


def update_digest(total: hashlib._Hash, examples: Examples) -> None:
    """Add examples to a digest: every byte of a tensor, and what a store says of itself.

    total: the digest.
    examples: to add.
    """
    total.update(f"{examples.dtype}{tuple(examples.shape)}".encode())
    total.update(examples.numpy().data if isinstance(examples, Tensor) else examples.digest.encode())
