"""What a table is: rows of means over seeds, and which of them are the best."""

from __future__ import annotations

import math
from dataclasses import dataclass

Place = tuple[int, int]  # row and column
ARROWS = {"higher": " ↑", "lower": " ↓", "": ""}
DIGITS, MOST = 3, 6  # digits that count where a column does not say its decimals, and decimals at most
CLEAR = 2.0  # standard errors by which the best must differ from the others: 95 % of chance differences are smaller
GUESSING = 0.1  # share of chance level by which an accuracy must exceed it where no error is known
BOLD = {  # what is set bold, as notes say it
    "clear": f"Bold: better than all others by more than {CLEAR:g} standard errors of the difference; underlined: "
    "second best by as much. Nothing is marked without standard errors, which need several seeds or a subset.",
    "plain": "Bold: best, underlined: second best, whatever their errors.",
}


@dataclass(frozen=True)
class Column:
    """better: "higher", "lower", or nothing where numbers are not compared."""

    title: str
    group: str = ""  # heading above columns that belong together
    better: str = ""
    decimals: int | None = None
    unit: str = ""  # written behind every number
    runs: tuple[str, ...] = ()  # that the column shows, where it is not all of them
    chance: float = math.nan  # what guessing gives: a number no better than that is never the best
    kept: bool = False  # shown even where no run has a number, only a cross
    divisor: float = 1.0  # numbers are written divided by it: 1000 for "7.6k"
    signed: bool = False  # written with + or -

    @property
    def heading(self) -> str:
        return f"{self.title}{ARROWS[self.better]}"


@dataclass(frozen=True)
class PrintedCell:
    """What a paper prints in a cell.

    value, spread: NaN where it prints none. sign: what it prints instead of a number, a dash or a cross.
    difference: of our number from it, in standard errors; NaN where there is none, or no error is known.
    """

    value: float = math.nan
    spread: float = math.nan
    sign: str = ""
    difference: float = math.nan


@dataclass(frozen=True)
class Cell:
    """A mean over seeds, its sample standard deviation where there are several, or why there is no number.

    error: standard error that comes from looking at a subset of the data. examples, population: its size, and that of
    the whole. mark: set behind the number, explained in a footnote. ranked: whether it can be the best.
    seed_error: standard error over seeds, where the spread that is shown is not over seeds.
    printed: what a paper has in this place, to stand beside it.
    like: how its numbers are written, where that is not as in the rest of its column.
    """

    mean: float = math.nan
    spread: float = math.nan
    seeds: int = 0
    note: str = ""  # what readers must know of it: such a number is never the best
    missing: str = "—"
    error: float = math.nan
    examples: int | None = None
    population: int | None = None
    mark: str = ""
    ranked: bool = True
    seed_error: float | None = None
    printed: PrintedCell | None = None
    like: Column | None = None

    @property
    def over_seeds(self) -> float:
        """Standard error of the mean over seeds; NaN where there is one seed."""
        if self.seed_error is not None:
            return self.seed_error
        return self.spread / math.sqrt(self.seeds) if self.seeds > 1 else math.nan

    @property
    def doubt(self) -> float:
        """Standard error of the mean, over seeds and from the subset; NaN where neither is known."""
        known = [one for one in (self.over_seeds, self.error) if math.isfinite(one)]
        return math.hypot(*known) if known else math.nan


@dataclass(frozen=True)
class Line:
    """One row."""

    label: str
    runs: tuple[str, ...]
    cells: tuple[Cell, ...]  # one per column
    group: str = ""  # heading above rows that belong together
    rivals: str = ""  # what it is compared with in blocks: rows with the same text; nothing: those of its group


@dataclass(frozen=True)
class Table:
    """Rows of cells; the best of a column is bold, or of each group of rows, or of a row among columns of one title."""

    name: str
    topic: str  # key of reports.figure_type.TOPICS
    title: str
    reading: str  # how to read it, in one sentence
    stub: str  # heading of the first column
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    note: str = ""
    across: bool = False  # compare along rows
    footnotes: tuple[str, ...] = ()
    bold: str = "clear"  # key of BOLD
    blocks: bool = False  # compare within each group of rows
    paired: bool = False  # compare within each row, in each group of columns


def rank_cells(table: Table) -> dict[tuple[int, int], int]:
    """Rank the cells of a table, by row and column: 1 for the best, 2 for the second best; see BOLD for what counts."""
    found: dict[tuple[int, int], int] = {}
    rows, columns = range(len(table.lines)), range(len(table.columns))
    if table.across:
        titles = dict.fromkeys(column.title for column in table.columns)
        sets = [[(i, j) for j in columns if table.columns[j].title == title] for i in rows for title in titles]
    elif table.paired:
        headings = dict.fromkeys(column.group for column in table.columns)
        sets = [[(i, j) for j in columns if table.columns[j].group == one] for i in rows for one in headings]
    elif table.blocks:
        blocks = [line.rivals or line.group for line in table.lines]
        sets = [[(i, j) for i in rows if blocks[i] == one] for one in dict.fromkeys(blocks) for j in columns]
    else:
        sets = [[(i, j) for i in rows] for j in columns]
    for members in sets:
        column = table.columns[members[0][1]] if members else Column("")
        cells = {(i, j): table.lines[i].cells[j] for i, j in members}
        cells = {place: cell for place, cell in cells.items() if _is_comparable(cell)}
        if column.better:
            places = _rank_plainly(cells, column) if table.bold == "plain" else _rank_clearly(cells, column)
            found |= {place: rank for place, rank in places.items() if not is_at_chance(cells[place], column)}
    return found


def _rank_plainly(cells: dict[Place, Cell], column: Column) -> dict[Place, int]:
    """Rank as papers do: numbers that are written alike are equal."""
    values = {place: round(cell.mean, count_decimals(cell, column)) for place, cell in cells.items()}
    order = sorted(set(values.values()), reverse=column.better == "higher")
    if len(order) < 2:
        return {}
    best = {place: 1 for place, value in values.items() if value == order[0]}
    return best | {place: 2 for place, value in values.items() if value == order[1] and len(order) > 2}


def _rank_clearly(cells: dict[Place, Cell], column: Column) -> dict[Place, int]:
    """Rank the best if it is clear of all others, then the second best if it is clear of all behind it."""
    order = sorted(cells, key=lambda place: cells[place].mean, reverse=column.better == "higher")
    found: dict[Place, int] = {}
    for rank, (place, behind) in enumerate(((order[:1], order[1:]), (order[1:2], order[2:])), start=1):
        if not behind or not all(_differ(cells[place[0]], cells[other]) for other in behind):
            break
        found[place[0]] = rank
    return found


def _differ(one: Cell, other: Cell) -> bool:
    """Whether two numbers differ by more than chance; never where an error is not known."""
    return abs(one.mean - other.mean) > CLEAR * math.hypot(one.doubt, other.doubt)


def is_at_chance(cell: Cell, column: Column) -> bool:
    """Whether a number is no better than guessing."""
    if not math.isfinite(column.chance):
        return False
    margin = CLEAR * cell.doubt if math.isfinite(cell.doubt) else 0.0
    return cell.mean - column.chance <= max(margin, GUESSING * column.chance)


def _is_comparable(cell: Cell) -> bool:
    return math.isfinite(cell.mean) and not cell.note and cell.ranked


def count_decimals(cell: Cell, column: Column) -> int:
    """Count the decimals of a cell: those of its column, or as many as give the mean three significant digits."""
    if column.decimals is not None:
        return column.decimals
    return _count_significant(cell.mean)


def _count_significant(value: float) -> int:
    size = abs(value)
    power = math.floor(math.log10(size)) if math.isfinite(size) and size > 0 else 0
    return min(max(DIGITS - 1 - power, 0), MOST)


def format_cell(cell: Cell, column: Column) -> str:
    """Format a cell as plain text."""
    column = cell.like or column
    places = count_decimals(cell, column)
    return format_numbers(cell, column, f".{places}f", f".{places}f")


def format_numbers(cell: Cell, column: Column, mean: str, spread: str) -> str:
    """Format a cell: the mean, the spread over seeds, and in brackets its examples, error and note.

    mean, spread: format specifications of the two numbers, such as ".1f".
    """
    if not math.isfinite(cell.mean):
        return cell.missing
    text = f"{cell.mean / column.divisor:{'+' if column.signed else ''}{mean}}{column.unit}{cell.mark}"
    if math.isfinite(cell.spread):
        text += f" ± {cell.spread / column.divisor:{spread}}"
    said = [
        f"n = {cell.examples}" if cell.examples is not None else "",
        f"SE {cell.error / column.divisor:.2g}" if cell.error > 0 else "",
        cell.note,
    ]
    inside = ", ".join(one for one in said if one)
    return f"{text} ({inside})" if inside else text


def format_printed(cell: Cell, column: Column) -> str:
    """Format what a paper prints in a cell, and how far ours is from it: "[59.9 ± 0.3; -0.7]"; empty without one."""
    printed = cell.printed
    if printed is None:
        return ""
    column = cell.like or column
    if printed.sign:
        return f"[{printed.sign}]"
    places = column.decimals if column.decimals is not None else _count_significant(printed.value)
    text = format_numbers(Cell(printed.value, printed.spread), column, f".{places}f", f".{places}f")
    return f"[{text}; {printed.difference:+.1f}]" if math.isfinite(printed.difference) else f"[{text}]"
