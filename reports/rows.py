"""The numbers in a figure: one row for each point that is drawn, written as CSV beside the picture.

>>> print(to_csv([{"run": "a", "mean": 0.5}, {"run": "=b", "seeds": 3}]).replace(chr(13), ""), end="")
run,mean,seeds
a,0.5,
'=b,,3
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from reports.inputs.summary import escape_formula

Row = dict[str, str | float]  # column -> value; whole numbers are numbers too


def list_numbers(rows: Sequence[Row], column: str) -> list[float]:
    """List the numbers of a column.

    rows: all of them must have a number there.
    """
    return [float(row[column]) for row in rows]


def to_csv(rows: Sequence[Row]) -> str:
    """Write rows as CSV, with columns in order of first appearance; no text can be taken for a formula."""
    text = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.writer(text)
    writer.writerow([escape_formula(column) for column in columns])
    writer.writerows([escape_formula(row.get(column, "")) for column in columns] for row in rows)
    return text.getvalue()
