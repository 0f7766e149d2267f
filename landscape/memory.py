"""How many bytes there are, and how many a piece of work keeps."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


# glibc's mallopt: what is freed at the end of the heap beyond the first number of bytes goes back to the system; the
# heap grows by the second at least; blocks larger than the third have pages of their own, never used twice
KEEP_FREED = {-1: 2**28, -2: 2**24, -3: 2**25}


@cache
def keep_freed() -> bool:
    """Let this process use freed memory again, instead of asking the system for fresh pages for every activation.

    Activations of a convolution are megabytes each: by default glibc returns them at once, and the system clears the
    same pages anew for the next one. A Hessian product of LeNet64 met 40,000 page faults and took 1.2 times as long.
    Once per process, and only where the allocator is glibc's and nobody has tuned it (MALLOC_... or GLIBC_TUNABLES).
    """
    tuned = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" and not tuned else None
    return mallopt is not None and all(mallopt(option, value) == 1 for option, value in KEEP_FREED.items())


def parse_bytes(text: str | int | None) -> int:
    """Bytes from "8G", "512M" or a number; None means half of the memory that is free now."""
    if text is None:
        return available() // 2
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?\s*", str(text), re.IGNORECASE)
    if match is None:
        raise ValueError(f"memory must look like 8G, 512M or a number of bytes, got '{text}'")
    return int(float(match[1]) * UNITS[match[2].upper()])


def available() -> int:
    """Free physical memory in bytes, counting what the system would give up."""
    try:
        with open("/proc/meminfo") as table:
            return next(int(line.split()[1]) * 1024 for line in table if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // 2


class Saved:
    """What autograd saved, every storage once."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, weakref.ref[Tensor]]] = {}  # address -> bytes, the last who saved it

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self._found[storage.data_ptr()] = (storage.nbytes(), weakref.ref(tensor))

    def all(self) -> int:
        """Bytes that were saved, if only for a moment."""
        return sum(count for count, _ in self._found.values())

    def kept(self) -> int:
        """Bytes that a graph still holds."""
        return sum(count for count, tensor in self._found.values() if tensor() is not None)


@contextmanager
def counting_saved(known: Collection[Tensor]) -> Iterator[Saved]:
    """Count the bytes that autograd saves inside the block, `known` ones left out."""
    skip = {tensor.untyped_storage().data_ptr() for tensor in known}
    saved = Saved()

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in skip:
            saved.add(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved
