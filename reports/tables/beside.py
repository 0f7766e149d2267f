"""A paper's numbers beside ours, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from reports.inputs.progress import DAGGER
from reports.quantities.quantity import Quantity
from reports.tables.published import Printed
from reports.tables.table import Cell, PrintedCell

SEEDS = 3  # of the papers, which their spreads go over


def compare_with_printed(cell: Cell, quantity: Quantity, printed: Printed | None) -> PrintedCell | None:
    """Put a paper's number beside a cell; the difference in standard errors where both are final numbers."""
    if printed is None:
        return None
    found = PrintedCell(printed.value, printed.spread, printed.sign)
    if not quantity.comparable or DAGGER in cell.mark or not math.isfinite(cell.mean - printed.value):
        return found
    error = combine_errors(cell, math.nan if quantity.spread == "clients" else printed.spread)
    return replace(found, difference=(cell.mean - printed.value) / error if error > 0 else math.nan)


def combine_errors(cell: Cell, spread: float) -> float:
    """Combine the standard errors of our mean and of a printed one; NaN where neither is known.

    spread: that is printed, over SEEDS seeds; NaN: none. Where we have one seed, it stands for ours too.
    """
    ours = cell.over_seeds
    if not math.isfinite(ours) and cell.seeds:
        ours = spread / math.sqrt(cell.seeds)
    known = [one for one in (ours, cell.error, spread / math.sqrt(SEEDS)) if math.isfinite(one)]
    return math.hypot(*known) if known else math.nan


def describe_brackets(cells: Sequence[Cell]) -> str:
    """Say how differences from printed numbers are made."""
    compared = [cell for cell in cells if cell.printed is not None and math.isfinite(cell.printed.difference)]
    text = "In square brackets: as printed"
    if not compared:
        return f"{text}."
    text += (
        f"; then ours minus printed in standard errors of the difference (ours: over seeds and from a subset; "
        f"printed: spread / √{SEEDS} where a spread over seeds is printed, else taken as exact)."
    )
    alone = any(not math.isfinite(cell.over_seeds) for cell in compared)
    return f"{text} With one seed of ours the printed spread stands for ours too." if alone else text
