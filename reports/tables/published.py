"""The numbers that the papers print, as far as they can be read."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("published.csv")
COLUMNS = ("artefact", "row", "column", "value", "spread", "unit", "note")
SIGNS = {
    "-": "\N{EN DASH}",
    "x": "\N{MULTIPLICATION SIGN}",
}  # what a paper prints where there is no number, as tables show it


@dataclass(frozen=True)
class Printed:
    """What a paper prints in a cell.

    value: NaN where there is no number. spread: behind ±; NaN where there is none. unit: of both.
    sign: a dash or a cross, where it stands instead of a number.
    note: how it was read, and what contradicts it.
    """

    value: float
    spread: float = math.nan
    unit: str = ""
    note: str = ""
    sign: str = ""


def read_printed(artefact: str) -> dict[tuple[str, str], Printed]:
    """Read what a paper prints in a table, by row and column; empty where nothing is on record.

    artefact: "fedgloss/table3".
    """
    return dict(_read_file(FILE).get(artefact, {}))


@cache
def _read_file(path: Path) -> dict[str, dict[tuple[str, str], Printed]]:
    """Read all printed numbers by artefact; ValueError with the line that is not as it should be."""
    found: dict[str, dict[tuple[str, str], Printed]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file, strict=True)
        heading = tuple(next(lines, ()))
        if heading != COLUMNS:
            raise ValueError(f"{path}: expected the columns {', '.join(COLUMNS)}; got {', '.join(heading)}")
        for fields in lines:
            where = f"{path}, line {lines.line_num}"
            if len(fields) != len(COLUMNS):
                raise ValueError(f"{where}: expected {len(COLUMNS)} fields, got {len(fields)}")
            artefact, row, column = fields[:3]
            if not artefact.count("/") == 1 or not row or not column:
                raise ValueError(f"{where}: expected paper/artefact, a row and a column; got {artefact!r}, {row!r}")
            cells = found.setdefault(artefact, {})
            if (row, column) in cells:
                raise ValueError(f"{where}: {artefact}, {row}, {column} occurs twice")
            cells[row, column] = _read_cell(fields[3], fields[4], fields[5], fields[6], where)
    return found


def _read_cell(value: str, spread: str, unit: str, note: str, where: str) -> Printed:
    """Read the fields of a cell.

    value: a number, or a key of SIGNS. spread: a number that is not negative, or nothing.
    where: file and line, for errors.
    """
    if value in SIGNS:
        if spread:
            raise ValueError(f"{where}: there is no spread of a '{value}', got {spread!r}")
        return Printed(math.nan, unit=unit, note=note, sign=SIGNS[value])
    around = _read_number(spread, where) if spread else math.nan
    if around < 0:
        raise ValueError(f"{where}: a spread is not negative, got {spread!r}")
    if not unit:
        raise ValueError(f"{where}: a number needs a unit")
    return Printed(_read_number(value, where), around, unit, note)


def _read_number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where}: expected a number or one of {', '.join(SIGNS)}; got {text!r}")
    return number
