"""Metrics that another framework wrote: a CSV or JSONL file as records of ours."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path

from training.data.formats.files import read_text
from training.storage import metrics

RESERVED = ("seal", "recorded", "own_accuracies", "client_accuracies", "client_mious")  # not numbers of a round
NUMBERS = ("round", *metrics.NUMBERS)  # endings of names whose values must be numbers
Numbers = dict[str, float | None]  # metric -> its value


def read_records(path: Path, columns: Mapping[str, str], shift: int = 0) -> dict[int, Numbers]:
    """Read metrics by round; ValueError that names the line that is wrong.

    path: CSV with a first line of names, or JSONL; one line for each round, which has an entry `round`.
    columns: our name of a metric -> its name in the file; what is not listed keeps its name.
    shift: added to the numbers of the rounds.
    """
    names = {theirs: ours for ours, theirs in columns.items()}
    found: dict[int, Numbers] = {}
    seen: set[str] = set()
    for line, row in _read_rows(path):
        where = f"{path}, line {line}"
        seen |= set(row)
        numbers = {names.get(name, name): _parse(value, where, names.get(name, name)) for name, value in row.items()}
        number = numbers.pop("round", None)
        if number is None or number != int(number) or number + shift < 0:
            raise ValueError(f"{where}: needs the number of its round under 'round', or adopt.columns.round = NAME")
        round = int(number) + shift
        if round in found:
            raise ValueError(f"{where}: round {round} is there twice")
        _check_accuracies(numbers, where)
        found[round] = {name: value for name, value in numbers.items() if name not in RESERVED}
    absent = [theirs for theirs in columns.values() if theirs not in seen]
    if absent:
        raise ValueError(f"{path} has no column '{absent[0]}', as adopt.columns says; it has {', '.join(sorted(seen))}")
    return found


def _read_rows(path: Path) -> list[tuple[int, dict[str, object]]]:
    """Rows by their line numbers: names and values."""
    if path.suffix not in (".csv", ".jsonl"):
        raise ValueError(f"adopt.metrics must be a .csv or .jsonl file, got {path.name}")
    if not path.is_file():
        raise ValueError(f"{path}: no such file; adopt.metrics names it")
    text = read_text(path)
    if path.suffix == ".csv":
        try:
            rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True, restkey="", restval=None))
        except csv.Error as error:
            raise ValueError(f"{path} is not readable as CSV ({error})") from None
        return [(line, dict(row)) for line, row in enumerate(rows, start=2)]
    found: list[tuple[int, dict[str, object]]] = []
    for line, part in enumerate(text.splitlines(), start=1):
        if not part.strip():
            continue
        try:
            row = json.loads(part)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {line}: not a JSON object")
        found.append((line, row))
    return found


def _parse(value: object, where: str, name: str) -> float | None:
    """A number, or None where there is none.

    where: the line, for messages. name: of the metric, as ours are called.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        if isinstance(value, (bool, list, dict)):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        if not name.endswith(NUMBERS):
            return None  # texts and lists are left out
        raise ValueError(f"{where}: '{name}' must be a number or empty, got {str(value)[:40]!r}") from None
    return number if math.isfinite(number) else None


def _check_accuracies(numbers: Numbers, where: str) -> None:
    for name, value in numbers.items():
        if name.endswith("accuracy") and value is not None and not 0 <= value <= 1:
            raise ValueError(f"{where}: {name} must be a fraction from 0 to 1, got {value:g}; divide per cents by 100")
