"""What a table is: rows of means over seeds, and which of them are the best."""

from __future__ import annotations

import math
from dataclasses import dataclass

ARROWS = {"higher": " ↑", "lower": " ↓", "": ""}
DIGITS, MOST = 3, 6  # digits that count where a column does not say its decimals, and decimals at most


@dataclass(frozen=True)
class Column:
    """better: "higher", "lower", or nothing where numbers are not compared."""

    title: str
    group: str = ""  # heading above columns that belong together
    better: str = ""
    decimals: int | None = None
    unit: str = ""  # written behind every number
    runs: tuple[str, ...] = ()  # that the column shows, where it is not all of them

    @property
    def heading(self) -> str:
        return f"{self.title}{ARROWS[self.better]}"


@dataclass(frozen=True)
class Cell:
    """A mean over seeds, its sample standard deviation where there are several, or why there is no number."""

    mean: float = math.nan
    spread: float = math.nan
    seeds: int = 0
    note: str = ""  # what readers must know of it: such a number is never the best
    missing: str = "—"


@dataclass(frozen=True)
class Line:
    """One row."""

    label: str
    runs: tuple[str, ...]
    cells: tuple[Cell, ...]  # one per column
    group: str = ""  # heading above rows that belong together


@dataclass(frozen=True)
class Table:
    """Rows of cells; the best of a column is bold, or of a row among columns of one title."""

    name: str
    question: str  # key of reports.figure.QUESTIONS
    title: str
    reading: str  # how to read it, in one sentence
    stub: str  # heading of the first column
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    note: str = ""
    across: bool = False  # compare along rows


def ranks(table: Table) -> dict[tuple[int, int], int]:
    """1 for the best cells, 2 for the second best, by row and column; equal as written is equal."""
    found: dict[tuple[int, int], int] = {}
    rows, columns = range(len(table.lines)), range(len(table.columns))
    if table.across:
        titles = dict.fromkeys(column.title for column in table.columns)
        sets = [[(i, j) for j in columns if table.columns[j].title == title] for i in rows for title in titles]
    else:
        sets = [[(i, j) for i in rows] for j in columns]
    for members in sets:
        better = table.columns[members[0][1]].better if members else ""
        values = {
            (i, j): _rounded(table.lines[i].cells[j], table.columns[j]) for i, j in members if _known(table, i, j)
        }
        order = sorted(set(values.values()), reverse=better == "higher")
        if not better or len(order) < 2:
            continue
        for place, value in values.items():
            if value == order[0]:
                found[place] = 1
            elif value == order[1] and len(order) > 2:
                found[place] = 2
    return found


def _rounded(cell: Cell, column: Column) -> float:
    return round(cell.mean, places_of(cell, column))


def _known(table: Table, row: int, column: int) -> bool:
    cell = table.lines[row].cells[column]
    return math.isfinite(cell.mean) and not cell.note


def places_of(cell: Cell, column: Column) -> int:
    """Decimals: as the column says, or so that three digits of the mean count."""
    if column.decimals is not None:
        return column.decimals
    size = abs(cell.mean)
    power = math.floor(math.log10(size)) if math.isfinite(size) and size > 0 else 0
    return min(max(DIGITS - 1 - power, 0), MOST)


def text_of(cell: Cell, column: Column) -> str:
    """A cell in plain text."""
    if not math.isfinite(cell.mean):
        return cell.missing
    places = places_of(cell, column)
    text = f"{cell.mean:.{places}f}{column.unit}"
    if math.isfinite(cell.spread):
        text += f" ± {cell.spread:.{places}f}"
    return f"{text} ({cell.note})" if cell.note else text
