"""Find cells and runs of artefacts by their names."""

from __future__ import annotations

from reports.artefact import Cell, Entry, Paper, get_key, list_cells
from reports.artefacts.plan import Wanted, select_runs
from reports.artefacts.scales import SCALES


def list_wanted(paper: Paper, name: str, scale: str = "full") -> list[Wanted]:
    """List the runs of an artefact."""
    return list(select_runs(paper, [paper.find(name)], SCALES[scale]).values())


def find_cell(paper: Paper, name: str, row: str, column: str) -> Cell:
    """Find a cell of a table by the keys of its row and column."""
    for one in list_cells(paper, paper.find(name)):
        if isinstance(one.column, Entry) and (get_key(one.row), get_key(one.column)) == (row, column):
            return one
    raise AssertionError(f"{name} has no cell {row}, {column}")
