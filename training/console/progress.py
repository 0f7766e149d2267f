"""Progress: bars with the remaining time on a terminal, one plain line per finished piece elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from landscape.progress import without_bars
from landscape.results import Progress as Report


class Bars:
    """Makes a progress callback for each piece of work."""

    def __init__(self, console: Console, bars: Progress | None):
        self.console, self._bars = console, bars

    def __call__(self, name: str) -> Report:
        """Return a callback (done, total) that moves a new bar with this name."""
        bars = self._bars
        if bars is not None:
            task = bars.add_task(name, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)
        start = time.perf_counter()

        def report(done: int, total: int) -> None:
            if done == total:
                line = f"{name}: {total} done in {time.perf_counter() - start:.1f} s"
                self.console.print(line, markup=False, soft_wrap=True)

        return report


@contextmanager
def bars(console: Console) -> Iterator[Bars]:
    """Show progress on a console for the duration of a block; gives the `Bars` to report to."""
    if not console.is_terminal:
        yield Bars(console, None)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with without_bars(), Progress(*columns, console=console) as live:  # what is called inside has no bars of its own
        yield Bars(console, live)
