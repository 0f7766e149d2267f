"""Tables with a row per method and columns for every data set and partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from reports.inputs.progress import CROSS
from reports.inputs.runs import Collection, Run
from reports.palette import assign_looks
from reports.tables.cells import Found
from reports.tables.table import Cell, Column, Line
from reports.variants import Variant, find_variants


def list_sections(everything: Collection) -> Iterator[tuple[str, list[Run], list[Variant]]]:
    """List every pair of data set and partition: its title, its runs, and their variants."""
    for data, heterogeneity in everything.settings:
        runs = everything.select(data, heterogeneity)
        yield f"{data}, {heterogeneity}".strip(", "), runs, find_variants(runs, everything)


def tabulate_methods(
    everything: Collection, columns_of: Callable[[str, list[Run], list[Variant]], list[Found]]
) -> tuple[tuple[Column, ...], tuple[Line, ...]]:
    """Make a row per method, and columns for every data set and partition; columns without any number are left out.

    columns_of: makes the columns of a section from its title, its runs and their variants.
    """
    columns: list[Column] = []
    found: dict[str, dict[int, Cell]] = {}
    runs: dict[str, list[str]] = {}
    for section, members, methods in list_sections(everything):
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
    for name in sort_variants(everything):
        if name not in found:
            continue
        cells_of = tuple(found[name].get(place, Cell()) for place in range(len(columns)))
        if any(math.isfinite(cell.mean) or cell.missing != "—" for cell in cells_of):
            lines.append(Line(name, tuple(runs[name]), cells_of))
    return tuple(columns), tuple(lines)


def sort_variants(everything: Collection) -> list[str]:
    """Sort the names of all variants as in legends: by method, then in order of appearance."""
    methods = list(assign_looks(run.algorithm for run in everything.runs))
    found = {one.name: one.algorithm for _, _, find_variants in list_sections(everything) for one in find_variants}
    return sorted(found, key=lambda name: methods.index(found[name]))


def describe_seed_counts(lines: Sequence[Line]) -> str:
    """Say over how many seeds the cells of a table are means."""
    counts = sorted({cell.seeds for line in lines for cell in line.cells if cell.seeds})
    if not counts or counts[-1:] == [1]:
        return "One seed."
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean ± standard deviation over {many} seeds."
