"""Keyed randomness: a generator is a function of (seed, purpose, ...), never of what ran before it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def key(seed: int, *parts: str | int) -> int:
    """Mix a seed and any names or numbers into 63 bits, the same on every machine.

    >>> key(0, "batch", 1) == key(0, "batch", 1), key(0, "batch", 1) == key(0, "batch", "1")
    (True, False)
    """
    words = ":".join([str(int(seed)), *(f"{type(part).__name__}={part}" for part in parts)])
    digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # torch and NumPy both take any non-negative 63-bit seed


def torch_generator(seed: int, *parts: str | int) -> torch.Generator:
    """A torch generator for a key, on the CPU: the numbers do not depend on the device of the model."""
    import torch  # here, because partitions are read where it is not installed

    return torch.Generator().manual_seed(key(seed, *parts))


def numpy_generator(seed: int, *parts: str | int) -> np.random.Generator:
    """A NumPy generator for a key."""
    return np.random.Generator(np.random.PCG64(key(seed, *parts)))


def normal(shape: tuple[int, ...], seed: int, *parts: str | int) -> Tensor:
    """Standard Gaussian numbers for a key, in float64, so that every precision starts from the same vector."""
    import torch

    return torch.randn(shape, generator=torch_generator(seed, *parts), dtype=torch.float64)


def rademacher(shape: tuple[int, ...], seed: int, *parts: str | int) -> Tensor:
    """Independent signs for a key, +1 or -1, in float64."""
    import torch

    bits = torch.randint(0, 2, shape, generator=torch_generator(seed, *parts), dtype=torch.int8)
    return bits.double().mul_(2).sub_(1)
