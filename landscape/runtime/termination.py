"""What happens when the system asks a process to end, as Slurm does before a job's time is over. Imports no torch.

SIGTERM raises `Terminated` in the main thread: leases are released, workers end, and the process exits with the code
TERMINATED. A block that must not be left half-done is run inside `postpone`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 75  # EX_TEMPFAIL of sysexits.h: the same command, run again, goes on where this one stopped


class Terminated(SystemExit):
    """Raised in the main thread when the process is asked to end."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


class _Inbox:
    """Whether the process was asked to end, and how many blocks are running that must not be left."""

    def __init__(self) -> None:
        self.asked, self.depth = False, 0


_inbox = _Inbox()


@contextmanager
def listen() -> Iterator[None]:
    """Raise Terminated when SIGTERM arrives, for the duration of a block.

    Does nothing in other threads than the main one, or if the program handles SIGTERM itself.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _receive)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _inbox.asked = False


@contextmanager
def keep_handler() -> Iterator[None]:
    """Restore the current handler of SIGTERM after a block: libraries such as Ray install their own."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def postpone() -> Iterator[None]:
    """Run a block to its end even if SIGTERM arrives; Terminated is raised after it, unless another error is."""
    _inbox.depth += 1
    try:
        yield
    finally:
        _inbox.depth -= 1
    if _inbox.asked and not _inbox.depth:
        raise Terminated


def _receive(number: int, frame: FrameType | None) -> None:
    _inbox.asked = True
    if not _inbox.depth:
        raise Terminated
