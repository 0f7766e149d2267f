"""Worker processes that start without their parent's script and end with their parent. This file imports no torch."""

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
    """End this worker process as soon as the process that started it has ended, even if that was killed.

    Call it first in a process that multiprocessing has started, or as the `initializer` of a ProcessPoolExecutor. A
    thread waits for the end of a pipe that only the parent holds open. The kernel's signal at a parent's death
    (PR_SET_PDEATHSIG) is not used, because it is also sent when just the thread ends that started the worker.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("end_with_parent must be called in a process that multiprocessing has started")
    threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True, name="watch the parent").start()


@contextmanager
def without_main() -> Iterator[None]:
    """Keep processes that are started inside this context from importing the caller's script.

    Our own would import torch, and a user's script would run again.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # at once: no parent is left that could use a result or an error
