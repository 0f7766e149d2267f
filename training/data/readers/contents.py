"""What the files of a data set hold, before it is a Dataset."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from training.data.stores import Examples, Groups

MEGABYTE = 2**20
Pair = tuple[Tensor, Tensor]  # images (N, C, H, W) uint8, labels (N,) int64


@dataclass(frozen=True, eq=False)
class Contents:
    """What the files of a data set hold.

    train, test: inputs and targets.
    classes: how many there are.
    class_names: of all classes, in their order.
    users: who each training example belongs to, where the data say so.
    test_users: who each test example belongs to; the same people.
    test_domains: the test set that each test example belongs to, where there are several.
    keys: the file or name of each training example, as published splits cite it.
    vocabulary: numbers of tokens, where inputs are tokens.
    """

    train: tuple[Examples, Examples]
    test: tuple[Examples, Examples]
    classes: int
    class_names: tuple[str, ...] | None = None
    users: Groups | None = None
    test_users: Groups | None = None
    test_domains: Groups | None = None
    keys: tuple[str, ...] | None = None
    vocabulary: int | None = None
