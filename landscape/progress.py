"""Progress bars of long computations: by default on a terminal and in notebooks, elsewhere only where asked for.

A call with its own `progress=` reports there and shows no bar. Imports no torch.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

P = ParamSpec("P")
R = TypeVar("R")
DELAY = 0.5  # seconds before a bar appears: short computations show none
_wanted: bool | None = None  # what show_progress was told; None: as the terminal suggests
_silent = 0  # how many blocks or bars are open in which no further bar may appear


def show_progress(wanted: bool | None) -> None:
    """Choose whether long computations show a bar.

    wanted: True: always; False: never; None, the default: on a terminal and in notebooks.
    """
    global _wanted
    _wanted = wanted


@contextmanager
def without_bars() -> Iterator[None]:
    """Show no bars within a block, because something else has the terminal."""
    global _silent
    _silent += 1
    try:
        yield
    finally:
        _silent -= 1


def with_bar(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a function with an argument `progress` a bar where the caller gives none.

    name: what stands before the bar.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs.get("progress") is not None or not _is_wanted():
                return function(*args, **kwargs)
            bar = Bar(name)
            given: dict[str, Any] = {**kwargs, "progress": bar.move}
            try:
                with without_bars():  # what the function calls itself
                    return function(*args, **given)
            finally:
                bar.close()

        return call

    return decorate


def _is_wanted() -> bool:
    """Whether a bar may appear: nobody else shows one, and there is somebody to see it."""
    if _silent or _wanted is False or threading.current_thread() is not threading.main_thread():
        return False
    console = Console(stderr=True)
    return _wanted is True or console.is_terminal or console.is_jupyter


class Bar:
    """A progress bar that appears after a while, and disappears when it is closed."""

    def __init__(self, name: str, delay: float = DELAY):
        self.name, self.start = name, time.perf_counter() + delay
        self._shown: tuple[Progress, TaskID] | None = None
        self._plain = False

    def move(self, done: int, total: int) -> None:
        """Show the progress.

        done: units of work that are done. total: all of them.
        """
        if time.perf_counter() < self.start:
            return
        if self._shown is None and not self._plain:
            self._open(total)
        if self._shown is not None:
            progress, task = self._shown
            progress.update(task, completed=done, total=total)
        else:
            print(f"\r{self.name} {done}/{total}", end="", file=sys.stderr, flush=True)

    def _open(self, total: int) -> None:
        console = Console(stderr=True)
        if not console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is None):
            self._plain = True
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        shown = Progress(*columns, console=console, transient=True)
        with suppress(LiveError):  # the caller has a display of rich's own
            shown.start()
            self._shown = shown, shown.add_task(self.name, total=total)
        self._plain = self._shown is None

    def close(self) -> None:
        """Remove the bar."""
        if self._shown is not None:
            self._shown[0].stop()
        elif self._plain:
            print(file=sys.stderr)
