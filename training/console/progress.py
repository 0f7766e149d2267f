"""Progress for people: bars with the time left on a terminal, one plain line per finished piece elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from landscape.results import Progress as Report


class Bars:
    """Hands out a progress callable per piece of work."""

    def __init__(self, console: Console, bars: Progress | None):
        self.console, self._bars = console, bars

    def __call__(self, name: str) -> Report:
        """A callable (done, total) that moves the bar called `name`."""
        bars = self._bars
        if bars is not None:
            task = bars.add_task(name, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)
        start = time.perf_counter()

        def report(done: int, total: int) -> None:
            if done == total:
                told = f"{name}: {total} done in {time.perf_counter() - start:.1f} s"
                self.console.print(told, markup=False, soft_wrap=True)

        return report


@contextmanager
def bars(console: Console) -> Iterator[Bars]:
    """Bars for the time of the block."""
    if not console.is_terminal:
        yield Bars(console, None)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as live:
        yield Bars(console, live)
