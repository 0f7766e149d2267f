"""Settings that torch keeps for the whole process, changed for as long as some thread needs the change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock


class ProcessSetting:
    """A change of torch's settings that threads share: the first one makes it, the last one takes it back.

    change: makes a context manager that changes settings and restores them.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[object]]):
        self._change = change
        self._lock, self._users, self._changed = Lock(), 0, ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Change the settings inside the block; they are restored after an error, too."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._changed.enter_context(self._change())
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._changed.close()
