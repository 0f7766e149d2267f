"""Tables in the papers' shape: rows and columns as declared, a quantity of the runs of both in every cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from reports.artefact import Entry, Grid, get_key
from reports.inputs.progress import select_counted
from reports.inputs.runs import Run
from reports.quantities.quantity import Quantity
from reports.tables.beside import compare_with_printed, describe_brackets
from reports.tables.cells import NEVER, fill_cell
from reports.tables.footnotes import Footnotes
from reports.tables.published import Printed
from reports.tables.table import BOLD, Cell, Column, Line, Table

Find = Callable[[Entry, Entry], Sequence[Run]]


def make_grid(
    name: str,
    title: str,
    grid: Grid,
    find_runs: Find,
    *,
    printed: Mapping[tuple[str, str], Printed] | None = None,
    beside: bool = False,
    bold: str = "clear",
    lacking: Callable[[Entry, Entry], str] = lambda row, column: "not run",
) -> Table:
    """Make a table in the shape that a paper prints.

    name, title: of the table.
    grid: its rows and columns, and what cells show.
    find_runs: gives the runs of a row and a column, one for each seed; fewer or none where they were not made.
    printed: the paper's numbers by row and column, as `published.read_printed` returns them.
    beside: whether these stand beside ours, with the difference in standard errors.
    bold: what is set bold, a key of BOLD.
    lacking: says why a cell has no runs.
    """
    if bold not in BOLD:
        raise ValueError(f"bold must be one of {', '.join(BOLD)}; got {bold!r}")
    below, lines = Footnotes(), []
    columns = tuple(_make_column(grid, column) for column in grid.columns)
    for row in grid.rows:
        cells = [Cell(missing=texts.get(get_key(row), ""), ranked=False) for texts in grid.facts.values()]
        names: list[str] = []
        for column, shown in zip(grid.columns, columns, strict=True):
            if (get_key(row), get_key(column)) in grid.absent:
                cells.append(Cell(missing="", ranked=False))
                continue
            runs = list(find_runs(row, column))
            cell = _make_cell(grid, row, column, runs, find_runs, lacking, below)
            quantity = choose_quantity(grid, row, column)
            cell = _write_like(cell, quantity, shown, grid.across)
            if printed is not None and beside:
                cell = replace(
                    cell, printed=compare_with_printed(cell, quantity, printed.get(get_place(grid, row, column)))
                )
            cells.append(cell)
            names += [run.name for run in runs]
        if grid.arrows and grid.paired:
            cells = _point_from_first(grid, cells)
        lines.append(
            Line(
                row.label, tuple(dict.fromkeys(names)), tuple(cells), row.group, grid.rivals(row) if grid.rivals else ""
            )
        )
    columns = (*(Column(heading) for heading in grid.facts), *columns)
    table = Table(name, "", title, "", grid.stub, columns, tuple(lines), bold=bold)
    table = replace(
        table,
        blocks=grid.blocks or grid.rivals is not None,
        across=grid.across,
        paired=grid.paired,
        footnotes=below.write(),
    )
    return replace(table, note=_write_note(grid, table, beside))


def choose_quantity(grid: Grid, row: Entry, column: Entry) -> Quantity:
    """Choose what a cell shows: the row's quantity, or the column's, or the table's."""
    own = row.quantity or column.quantity or grid.quantity
    if own is None:
        raise ValueError(f"{get_key(row)}, {get_key(column)}: neither row, column nor table says what the cell shows")
    return own if isinstance(own, Quantity) else own(row, column)


def get_place(grid: Grid, row: Entry, column: Entry) -> tuple[str, str]:
    """Return what published.csv calls the row and the column of a cell."""
    return (get_key(row), get_key(column)) if grid.printed is None else grid.printed(row, column)


def find_reference(grid: Grid, row: Entry) -> Entry | None:
    """Find the row that a row is compared with: of several with the right label, the one in the same group."""
    if isinstance(grid.reference, Entry):
        return grid.reference
    if not grid.reference:
        return None
    same = [one for one in grid.rows if grid.reference in (one.label, get_key(one))]
    if not same:
        raise ValueError(f"reference: no row is called '{grid.reference}'; rows: {', '.join(map(get_key, grid.rows))}")
    return next((one for one in same if one.group == row.group), same[0])


def _make_column(grid: Grid, column: Entry) -> Column:
    """Make the heading of a column; its numbers are written as the first row's."""
    shown = [choose_quantity(grid, row, column) for row in grid.rows] or [Quantity("", "", lambda run, _: math.nan)]
    better = shown[0].better if len({one.better for one in shown}) == 1 else ""
    return replace(_describe(shown[0]), title=column.label, group=column.group, better=better)


def _describe(quantity: Quantity) -> Column:
    return Column(
        quantity.label,
        better=quantity.better,
        decimals=quantity.decimals,
        unit=quantity.unit,
        divisor=quantity.divisor,
        signed=quantity.signed,
    )


def _write_like(cell: Cell, quantity: Quantity, column: Column, across: bool) -> Cell:
    """Say how a cell is written, where its row shows something else than the first row of its column."""
    own = _describe(quantity)
    if replace(own, title=column.title, group=column.group, better=column.better) == column:
        return cell
    return replace(cell, like=own, ranked=cell.ranked and across)


def _make_cell(
    grid: Grid,
    row: Entry,
    column: Entry,
    runs: Sequence[Run],
    find_runs: Find,
    lacking: Callable[[Entry, Entry], str],
    below: Footnotes,
) -> Cell:
    """Make a cell from its runs, and gather what must be said of them below the table."""
    quantity = choose_quantity(grid, row, column)
    if not runs:
        return below.make_cell(lacking(row, column))
    basis = find_reference(grid, row)
    others = [] if basis is None else list(find_runs(basis, column))
    references = {run.seed: run for run in (others if quantity.fixed else select_counted(others))}
    cell = fill_cell(runs, quantity, references)
    where = ", ".join(" ".join(filter(None, (one.group, one.label))) for one in (row, column))
    if not quantity.fixed:
        for run in (*runs, *(references.values() if quantity.relative else ())):
            if run.progress.state in ("diverged", "unfinished"):
                below.runs.setdefault(run.name, (run, where))
    for run in runs:
        subset = quantity.examples(run)
        if cell.examples is not None and subset.examples is not None:
            below.subsets[f"{quantity.label}: {subset.description}"] = None
    below.never = below.never or cell.missing == NEVER
    if not math.isfinite(cell.mean) and cell.missing == "—":
        cell = below.make_cell(_explain_lack(quantity, basis, references))
    if grid.arrows and basis is not None and basis is not row:
        against = fill_cell(list(references.values()), quantity, references)
        cell = replace(cell, mark=f"{_choose_arrow(cell, against)}{cell.mark}")
    return cell


def _explain_lack(quantity: Quantity, basis: Entry | None, references: Mapping[int, Run]) -> str:
    if quantity.study:
        return f"not measured yet ({quantity.study})"
    if quantity.relative and not references:
        return "no run to compare with" if basis is None else f"no run of {basis.label} to compare with"
    return "not on record"


def _point_from_first(grid: Grid, cells: Sequence[Cell]) -> list[Cell]:
    """Give the numbers of a row arrows against the first one in their group of columns."""
    texts = len(grid.facts)
    first: dict[str, Cell] = {}
    pointed = list(cells[:texts])
    for column, cell in zip(grid.columns, cells[texts:], strict=True):
        arrow = _choose_arrow(cell, first[column.group]) if column.group in first else ""
        first.setdefault(column.group, cell)
        pointed.append(replace(cell, mark=f"{arrow}{cell.mark}"))
    return pointed


def _choose_arrow(cell: Cell, other: Cell) -> str:
    if not math.isfinite(cell.mean - other.mean) or cell.mean == other.mean:
        return ""
    return "↑" if cell.mean > other.mean else "↓"


def _write_note(grid: Grid, table: Table, beside: bool) -> str:
    """Say what the cells show, what ± is over, what is set bold and what stands in brackets."""
    shown = {one.name: one for one in _list_quantities(grid)}
    what = "; ".join(dict.fromkeys(one.label for one in shown.values()))
    cells = [cell for line in table.lines for cell in line.cells if math.isfinite(cell.mean)]
    said = [f"{capitalise(what)}.", _describe_spreads(list(shown.values()), cells)]
    said.append(f"{grid.note.rstrip('.')}." if grid.note else "")
    if any(column.better for column in table.columns):
        kinds = {" Within each group of rows.": grid.blocks, " Within each row.": table.across}
        kinds[" Within each row and group of columns."] = table.paired
        said.append(BOLD[table.bold] + next((text for text, chosen in kinds.items() if chosen), ""))
    if beside and any(cell.printed is not None for line in table.lines for cell in line.cells):
        said.append(describe_brackets(cells))
    return " ".join(one for one in said if one)


def capitalise(text: str) -> str:
    """Begin a text with a capital letter; a Greek letter is a symbol, and stays as it is."""
    return f"{text[:1].upper()}{text[1:]}" if text[:1].isascii() else text


def _list_quantities(grid: Grid) -> Iterator[Quantity]:
    for row in grid.rows:
        for column in grid.columns:
            if (get_key(row), get_key(column)) not in grid.absent:
                yield choose_quantity(grid, row, column)


def _describe_spreads(shown: Sequence[Quantity], cells: Sequence[Cell]) -> str:
    counts = sorted({cell.seeds for cell in cells if cell.seeds})
    if not counts:
        return ""
    seeds = (
        f"{counts[-1]} seed{'s' if counts[-1] > 1 else ''}"
        if len(counts) == 1
        else f"{counts[0]} to {counts[-1]} seeds"
    )
    over = "One seed" if counts == [1] else f"Means over {seeds}"
    kinds = {one.spread for one in shown if one.spread == "clients" or (one.spread and counts[-1] > 1)}
    if not any(math.isfinite(cell.spread) for cell in cells) or not kinds:
        return f"{over}."
    if len(kinds) == 1:
        return f"{over}; ± is the standard deviation over {kinds.pop()}."
    clients = ", ".join(dict.fromkeys(one.label for one in shown if one.spread == "clients"))
    return f"{over}; ± is the standard deviation over seeds, over clients for {clients}."
