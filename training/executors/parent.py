"""Worker processes that begin without their parent's script and end with their parent. This file imports no torch."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait


def end_with_parent() -> None:
    """Have this worker process end at once when the process that started it is gone, even if that was killed.

    To be called first thing in a process that was started by multiprocessing or by a ProcessPoolExecutor (as its
    `initializer`). A thread waits for the end of a pipe that only the parent holds open. The kernel's own signal at a
    parent's death (PR_SET_PDEATHSIG) is not used: it also comes when only the thread ends that started the worker.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("end_with_parent must be called in a process that multiprocessing has started")
    threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True, name="watch the parent").start()


@contextmanager
def without_main() -> Iterator[None]:
    """Start processes that do not import the caller's script: ours would bring torch, a user's would run again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # nobody is left to clean up for, and nobody to tell
