"""Tables for the terminal, and the text of settings in them. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from training.console.messages import printable
from training.storage.verified_files import Json


def make_table(*titles: str) -> Table:
    """Make an empty table with columns of these titles; the first column is never wrapped."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column, title in enumerate(titles):
        table.add_column(title, no_wrap=column == 0, overflow="fold")
    return table


@dataclass(frozen=True)
class FittingTable:
    """A wide table that becomes a narrow one where the terminal has too little room."""

    wide: Table
    narrow: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = Measurement.get(console, options.update(max_width=sys.maxsize), self.wide).maximum
        yield self.wide if needed <= options.max_width else self.narrow


def to_records(shown: RenderableType) -> list[Json]:
    """Return what a table shows as values that JSON can hold: one entry for each row, keys from the titles.

    shown: a table, perhaps with notes below. Rows without a first cell describe the one above: they are its "settings".
    """
    if isinstance(shown, Group):
        shown = next(one for one in shown.renderables if isinstance(one, (Table, FittingTable)))
    table = shown.wide if isinstance(shown, FittingTable) else shown
    assert isinstance(table, Table)
    titles = [" ".join(Text.from_markup(str(column.header)).plain.split()) for column in table.columns]
    found: list[Json] = []
    for cells in zip(*(list(column.cells) for column in table.columns), strict=True):
        texts = [Text.from_markup(str(cell)).plain for cell in cells]
        row = {title: text for title, text in zip(titles, texts, strict=True) if text}
        if texts[0] or not found:
            found.append(row)
        else:
            found[-1].setdefault("settings", []).append(row)
    return found


def add_notes(table: RenderableType, *lines: str) -> RenderableType:
    """Put lines of text below a table; brackets in them are not markup."""
    return Group(table, "", *(Text(line) for line in lines))


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print one line literally: not wrapped, not highlighted, without markup.

    console: where to print. text: the line. style: a style of rich for all of it, such as "bold".
    """
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def show_settings(values: Mapping[str, object]) -> str:
    """Write settings with their values as --set takes them.

    >>> show_settings({"rho": 0.05, "flip": True})
    'rho=0.05, flip=true'
    """
    return ", ".join(f"{key}={show_value(value)}" for key, value in values.items()) or "-"


def show_value(value: object) -> str:
    """Write a value as --set takes it, with no more digits than it needs."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show_value(inner) for inner in value) + "]"
    return str(value)
