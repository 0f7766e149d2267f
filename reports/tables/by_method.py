"""Tables with a row per method and columns for every data set and partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from reports.palette import assign_looks
from reports.progress import CROSS
from reports.runs import Collection, Run
from reports.tables.cells import Found
from reports.tables.table import Cell, Column, Line
from reports.variants import Variant, find_variants


def sections(everything: Collection) -> Iterator[tuple[str, list[Run], list[Variant]]]:
    for data, heterogeneity in everything.settings:
        runs = everything.select(data, heterogeneity)
        yield f"{data}, {heterogeneity}".strip(", "), runs, find_variants(runs, everything)


def by_method(
    everything: Collection, columns_of: Callable[[str, list[Run], list[Variant]], list[Found]]
) -> tuple[tuple[Column, ...], tuple[Line, ...]]:
    """A row per method, columns for every data set and partition; those without any number are left out."""
    columns: list[Column] = []
    found: dict[str, dict[int, Cell]] = {}
    runs: dict[str, list[str]] = {}
    for section, members, methods in sections(everything):
        for column, find in columns_of(section, members, methods):
            cells = {variant.name: find(variant) for variant in methods}
            crossed = column.kept and any(cell.missing == CROSS for cell in cells.values())
            if not crossed and not any(math.isfinite(cell.mean) for cell in cells.values()):
                continue
            for name, cell in cells.items():
                found.setdefault(name, {})[len(columns)] = cell
            columns.append(column)
        for variant in methods:
            runs.setdefault(variant.name, []).extend(variant.names)
    lines = []
    for name in in_order(everything):
        if name not in found:
            continue
        cells_of = tuple(found[name].get(place, Cell()) for place in range(len(columns)))
        if any(math.isfinite(cell.mean) or cell.missing != "—" for cell in cells_of):
            lines.append(Line(name, tuple(runs[name]), cells_of))
    return tuple(columns), tuple(lines)


def in_order(everything: Collection) -> list[str]:
    """Names of all variants as in legends: by method, then as they come."""
    methods = list(assign_looks(run.algorithm for run in everything.runs))
    found = {one.name: one.algorithm for _, _, find_variants in sections(everything) for one in find_variants}
    return sorted(found, key=lambda name: methods.index(found[name]))


def seeds_of(lines: Sequence[Line]) -> str:
    counts = sorted({cell.seeds for line in lines for cell in line.cells if cell.seeds})
    if not counts or counts[-1:] == [1]:
        return "One seed."
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean ± standard deviation over {many} seeds."
