"""The few numbers a reader wants first, by method, for one data set and partition."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from reports.inputs.progress import CROSS
from reports.inputs.runs import Collection, Run, label_score
from reports.quantities.measures import MEASURES
from reports.tables.cells import make_column, write_footnotes
from reports.tables.table import Cell, Column, Line, Table, count_decimals, format_numbers
from reports.variants import find_variants

# by name in MEASURES; a local model is not better for being flat on its own data, so that is not compared
WANTED = {"accuracy": "higher", "lambda_1": "lower", "local": "", "everyone": "lower", "incompatibility": "lower"}
SMALL = 1e-3  # below it a number is written with a power of ten
POWER = re.compile(r"e([+-]\d+)")
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def make_key_numbers(title: str, runs: Sequence[Run], everything: Collection, *, bold: str = "clear") -> Table | None:
    """Make a table of the key numbers, a row per method; None where nothing was measured.

    title: of the data set and partition.
    runs: those on it.
    bold: what is set bold, a key of BOLD.
    """
    methods = find_variants(runs, everything)
    labels = {name: MEASURES[name].label for name in WANTED} | {"accuracy": label_score(runs)}
    found = {name: make_column(MEASURES[name], labels[name], "", runs) for name in WANTED}
    cells = {name: [find(one) for one in methods] for name, (_, find) in found.items()}
    names = [
        name
        for name, some in cells.items()
        if any(math.isfinite(cell.mean) for cell in some)
        or (found[name][0].kept and any(cell.missing == CROSS for cell in some))
    ]
    if not names:
        return None
    columns = [replace(found[name][0], better=WANTED[name]) for name in names]
    lines = [
        Line(one.name, tuple(one.names), tuple(cells[name][place] for name in names), one.algorithm)
        for place, one in enumerate(methods)
    ]
    below = write_footnotes(everything, [run.name for run in runs], [MEASURES[name] for name in names])
    return Table("key_numbers", "", title, "", "method", tuple(columns), tuple(lines), footnotes=below, bold=bold)


def format_short(cell: Cell, column: Column) -> str:
    """Format a cell with three significant digits, small numbers with a power of ten: incompatibilities are tiny."""
    if column.decimals is None and 0 < abs(cell.mean) < SMALL:
        return POWER.sub(_write_power, format_numbers(cell, column, ".2e", ".1e"))
    kind = f".{count_decimals(cell, column)}f"
    return format_numbers(cell, column, kind, kind)


def _write_power(found: re.Match[str]) -> str:
    return f"×10{str(int(found[1])).translate(RAISED)}"
