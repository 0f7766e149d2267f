"""The few numbers a reader wants first, by method, for one data set and partition."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reports.measures import MEASURES
from reports.runs import Collection, Run
from reports.tables.by_method import mean_cell
from reports.tables.table import Cell, Column, Line, Table
from reports.variants import variants

# by name in MEASURES; a local model is not better for being flat on its own data, so that is not compared
WANTED = {"accuracy": "higher", "lambda_1": "lower", "local": "", "everyone": "lower", "incompatibility": "lower"}


def key_numbers(title: str, runs: Sequence[Run], everything: Collection) -> Table | None:
    """A row per method; what was measured for none of them is left out."""
    methods = variants(runs, everything)
    cells = {name: [mean_cell([MEASURES[name].find(run) for run in one.runs]) for one in methods] for name in WANTED}
    names = [name for name, found in cells.items() if any(math.isfinite(cell.mean) for cell in found)]
    if not names:
        return None
    columns = [Column(MEASURES[name].label, "", WANTED[name], MEASURES[name].decimals) for name in names]
    lines = [
        Line(one.name, tuple(one.names), tuple(cells[name][place] for name in names), one.algorithm)
        for place, one in enumerate(methods)
    ]
    return Table("key_numbers", "", title, "", "method", tuple(columns), tuple(lines))


def written(cell: Cell, column: Column) -> str:
    """Three digits that count: incompatibilities go down to millionths."""
    if not math.isfinite(cell.mean):
        return cell.missing
    kind = ".3g" if column.decimals is None else f".{column.decimals}f"
    doubt = f" ± {cell.spread:{'.2g' if column.decimals is None else kind}}" if math.isfinite(cell.spread) else ""
    return f"{cell.mean:{kind}}{doubt}"
