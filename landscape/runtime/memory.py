"""How many bytes a computation may take, and how many it keeps.

Nothing is reserved at the start: free memory is read again before each graph is kept, and one ledger counts the kept
graphs of all operators in the process. By default they take at most a quarter of what is free, and never use an eighth
of all memory, so that analyses side by side slow down instead of stopping the machine.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from landscape.runtime.device import CPU
from landscape.runtime.machine import Machine, Memory

T = TypeVar("T")
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SHARE = 1 / 4  # of the free memory that may be taken by default: so never more than a quarter of all
RESERVE = 1 / 8  # of all memory that is never used
MACHINE = Machine()


# glibc's mallopt: what is freed at the end of the heap beyond the first number of bytes goes back to the system; the
# heap grows by the second at least; blocks larger than the third have pages of their own, never used twice; and all
# threads share the fourth number of heaps, because one thread cannot reuse what lies free in another's heap
KEEP_FREED = {-1: 2**28, -2: 2**24, -3: 2**25, -8: 2}


@cache
def keep_freed() -> bool:
    """Let this process reuse freed memory, instead of asking the system for fresh pages for every activation.

    Activations of a convolution are megabytes each: by default glibc returns them at once, and the system clears the
    same pages anew for the next one. A Hessian product of LeNet64 met 40,000 page faults and took 1.2 times as long.
    Acts once per process, only if the allocator is glibc's and is not tuned already (MALLOC_... or GLIBC_TUNABLES).
    Returns whether it acted.
    """
    tuned = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" and not tuned else None
    return mallopt is not None and all(mallopt(option, value) == 1 for option, value in KEEP_FREED.items())


def parse_bytes(text: str | int) -> int:
    """Bytes from a number or a text with a unit.

    >>> parse_bytes("8G"), parse_bytes("1.5 MiB"), parse_bytes(512)
    (8589934592, 1572864, 512)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?\s*", str(text), re.IGNORECASE)
    if match is None:
        raise ValueError(f"memory must look like 8G, 512M or a number of bytes, got '{text}'")
    return int(float(match[1]) * UNITS[match[2].upper()])


def memory_of(device: torch.device) -> Memory:
    """The memory of a device in all and free now, counting as free what the system or torch's cache would give up."""
    machine = MACHINE.memory()
    if device.type == "cpu":
        return machine
    if device.type == "mps":  # shares the machine's memory
        total = torch.mps.recommended_max_memory()
        return Memory(total, min(max(total - torch.mps.driver_allocated_memory(), 0), machine.free))
    module = torch.get_device_module(device)
    if not hasattr(module, "mem_get_info"):
        return machine
    free, total = module.mem_get_info(device)
    cached = module.memory_reserved(device) - module.memory_allocated(device) if device.type == "cuda" else 0
    return Memory(total, free + cached)


def available(device: torch.device = CPU) -> int:
    """Free memory in bytes."""
    return memory_of(device).free


def allowance(device: torch.device = CPU, *, held: int = 0) -> int:
    """Bytes that one computation may take by default, so that others can run too: see SHARE and RESERVE.

    device: whose memory. held: bytes that it has already; the answer is what it may take on top of them.
    """
    return _allow(memory_of(device), held)


def _allow(memory: Memory, held: int) -> int:
    """Bytes on top of `held` ones: a share of what would be free without those, and nothing of the reserve."""
    share = SHARE * (memory.free + held) - held
    return max(int(min(share, memory.free - RESERVE * memory.total)), 0)


class Account:
    """What the kept graphs of one operator hold; it ends with its operator.

    device: where the graphs are.
    budget: the most bytes of all kept graphs in the process; None: by `allowance`.
    """

    def __init__(self, device: torch.device, budget: int | None):
        self.device, self.budget = device, budget
        self.promised = 0  # bytes of graphs that are being built
        self.held = 0  # bytes of graphs that have been built

    def release(self, size: int) -> None:
        """Count `size` held bytes no longer, because their graph was given up."""
        self.held -= size

    def hold(self, size: int) -> None:
        """Count `size` promised bytes as held, because their graph has been built."""
        self.promised -= size
        self.held += size


class Ledger:
    """What the kept graphs of all operators in this process hold together."""

    def __init__(self) -> None:
        self._accounts: weakref.WeakSet[Account] = weakref.WeakSet()  # an operator that dies takes its account along
        self._lock = threading.RLock()  # reentrant: collecting garbage may run code that comes back here

    def open(self, device: torch.device = CPU, budget: int | None = None) -> Account:
        """Open an account for graphs on a device.

        budget: the most bytes of all kept graphs in the process, of this account and others; None: what `allowance`
            says at the time.
        """
        account = Account(device, budget)
        with self._lock:
            self._accounts.add(account)
        return account

    def held(self, device: torch.device = CPU) -> int:
        """Bytes that graphs on a device hold, or will hold once they are built."""
        with self._lock:
            return sum(one.held + one.promised for one in self._on(device))

    def promise(self, account: Account, size: int, *, always: bool = False) -> bool:
        """Promise `size` bytes to one more graph if there is room for it now, or `always`; return whether it was."""
        with self._lock:
            fits = always or self._fits(account, size)
            if not fits and len(self._on(account.device)) > 1:
                gc.collect()  # unreachable operators still count until they are collected
                fits = self._fits(account, size)
            if fits:
                account.promised += size
            return fits

    def _fits(self, account: Account, size: int) -> bool:
        promised = sum(one.promised for one in self._on(account.device))
        taken = promised + sum(one.held for one in self._on(account.device))
        memory = memory_of(account.device)
        memory = replace(memory, free=max(memory.free - promised, 0))  # not yet used, but no longer free
        if account.budget is None:
            return size <= _allow(memory, taken)
        return taken + size <= account.budget and size <= memory.free

    def _on(self, device: torch.device) -> list[Account]:
        return [one for one in self._accounts if one.device == device]


def retry_smaller(compute: Callable[[], T], shrink: Callable[[], str], device: torch.device) -> T:
    """Compute; as often as the memory of the device runs out, shrink the work, warn, and compute again.

    shrink: takes less memory from then on and says in a few words how; empty: it cannot, and the error is raised.
    """
    while True:
        try:
            return compute()
        except torch.OutOfMemoryError:
            how = shrink()
            if not how:
                raise
        # only here, where the error no longer holds what was computed
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        warnings.warn(f"out of memory on {device}: continuing with {how}", RuntimeWarning, stacklevel=3)


class Saved:
    """The tensors that autograd saved, every storage counted once."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, weakref.ref[Tensor]]] = {}  # address -> bytes, the tensor that saved it last

    def add(self, tensor: Tensor) -> None:
        """Count a tensor that autograd saves."""
        storage = tensor.untyped_storage()
        self._found[storage.data_ptr()] = (storage.nbytes(), weakref.ref(tensor))

    def all(self) -> int:
        """Bytes that were saved, if only for a moment."""
        return sum(count for count, _ in self._found.values())

    def kept(self) -> int:
        """Bytes that a graph still holds."""
        return sum(count for count, tensor in self._found.values() if tensor() is not None)


@contextmanager
def count_saved(known: Collection[Tensor]) -> Iterator[Saved]:
    """Count the bytes that autograd saves inside the block.

    known: tensors that are not counted, because they are in memory anyway.
    """
    skip = {tensor.untyped_storage().data_ptr() for tensor in known}
    saved = Saved()

    def pack(tensor: Tensor) -> Tensor:
        kept = tensor.detach()  # a hook that returns its own argument makes a cycle, and the graph is never freed
        if kept.untyped_storage().data_ptr() not in skip:
            saved.add(kept)
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved


LEDGER = Ledger()
