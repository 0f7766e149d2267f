"""What a tracker is, what it is told about, and the file in which it remembers where it stopped. Imports no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from training import recipe_tables
from training.storage import metrics
from training.storage.atomic_files import DamagedError, write_atomically
from training.storage.verified_files import parse_object, read_small

FOLDER = "tracking"  # in a run: what trackers remember about it
PROJECT = "fl-landscape"  # project or experiment, where the user's environment names none


@dataclass(frozen=True)
class Subject:
    """What a tracker shows as one entry: a run, or a report on several.

    folder: in which the tracker may keep files. name: to show.
    settings: of the recipe, by table; none for a report.
    """

    folder: Path
    name: str
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """The numbers of one round by name."""

    round: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Exhibit:
    """A figure or a table of a report.

    name: with the parts of its path, "digits/accuracy". caption: what it shows.
    files: format -> file; a figure has png, a table has csv, markdown and latex.
    """

    name: str
    caption: str
    files: Mapping[str, Path]


class Tracker(Protocol):
    """An open entry of a tracker. Any method may raise: see `training.tracking.following.Guarded`."""

    @property
    def place(self) -> str:
        """Where to look at it, for a line on the terminal."""

    def find_last_round(self) -> int:
        """The last round that the tracker knows; 0 for none."""

    def log_rounds(self, rows: Sequence[Row]) -> None:
        """Add rounds that it does not know yet, in their order."""

    def log_figure(self, figure: Exhibit, round: int) -> None:
        """Add a figure. round: how far training was."""

    def log_table(self, table: Exhibit, round: int) -> None:
        """Add a table. round: how far training was."""

    def close(self, state: str) -> None:
        """Write what is left. state: of the run: running (it was interrupted), finished or diverged."""


def open_subject(run: Path) -> Subject:
    """Describe a run for trackers.

    run: its directory.
    """
    return Subject(run, run.absolute().name, recipe_tables.read(run).model_dump(mode="json", exclude_none=True))


def read_rows(run: Path) -> list[Row]:
    """Read the numbers of all finished rounds of a run.

    run: its directory.
    """
    return [Row(record["round"], flatten_record(record)) for record in metrics.read(run)]


def flatten_record(record: Mapping[str, object]) -> dict[str, float]:
    """Select the numbers of a round that a curve can show: not the round itself, lists, or what was not measured.

    >>> flatten_record({"round": 1, "accuracy": 0.5, "loss": None, "recorded": {"update_norm": {"mean": 2.0}}})
    {'accuracy': 0.5, 'recorded/update_norm': 2.0}
    """
    recorded = record.get("recorded")
    means = {
        f"recorded/{name}": one.get("mean")
        for name, one in (recorded.items() if isinstance(recorded, Mapping) else ())
        if isinstance(one, Mapping)
    }
    return {
        key: float(value)
        for key, value in {**record, **means}.items()
        if key != "round" and isinstance(value, (int, float)) and math.isfinite(value)
    }


def read_memory(folder: Path, tracker: str) -> dict[str, object]:
    """Read what a tracker remembers about a run; nothing if its file is missing or damaged.

    folder: of the subject. tracker: its name.
    """
    path = folder / FOLDER / f"{tracker}.json"
    try:
        return parse_object(read_small(path)) or {}
    except DamagedError:
        return {}


def write_memory(folder: Path, tracker: str, content: Mapping[str, object]) -> None:
    """Write what a tracker has to remember about a run; arguments as those of `read_memory`."""
    write_atomically(folder / FOLDER / f"{tracker}.json", json.dumps(content, indent=2).encode())
