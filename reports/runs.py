"""Runs as a report sees them: settings, metrics and stored results, read from files alone."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis import store, summary
from analysis.store import Stored, Table
from analysis.summary import FOLDER, SKEWS

COUNTED = 10_000_000  # clients times classes; of more nobody can see anything in a picture


@dataclass(frozen=True, eq=False)
class Run:
    """One run directory."""

    path: Path
    settings: dict[str, Any]  # nested, as in config.toml
    metrics: list[dict[str, Any]]  # one record per finished round
    results: dict[str, Stored] = field(default_factory=dict)  # study -> what it found
    dealt: NDArray[np.int64] | None = None  # training examples by client and class, where the partition is on disk

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def algorithm(self) -> str:
        """The method as it is called in legends: SWA is part of the name."""
        name = str(self.settings.get("algorithm", {}).get("name", self.name))
        return f"{name} + SWA" if "swa" in self.settings else name

    @property
    def data(self) -> str:
        return str(self.settings.get("data", {}).get("name", "own data"))

    @property
    def seed(self) -> int:
        return int(self.settings.get("seed", 0))

    @property
    def heterogeneity(self) -> str:
        """How the data were dealt out, in a few words."""
        partition: Mapping[str, Any] = self.settings.get("partition", {})
        skew = next((f" {partition[key]:g}" for key in SKEWS if key in partition), "")
        return f"{partition.get('name', '')}{skew}".strip()

    def series(self, key: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rounds and values of a metric, where it was recorded."""
        known = [(record["round"], record[key]) for record in self.metrics if record.get(key) is not None]
        rounds, values = zip(*known, strict=True) if known else ((), ())
        return np.asarray(rounds, dtype=np.float64), np.asarray(values, dtype=np.float64)

    def table(self, study: str, group: str) -> Table | None:
        found = self.results.get(study)
        return found.tables.get(group) if found is not None else None


@dataclass(frozen=True, eq=False)
class Collection:
    """The runs of a report, results of runs that were compared with each other, and what could not be read."""

    runs: list[Run]
    together: dict[str, list[Stored]]  # study -> files that compare runs
    problems: list[str]

    @cached_property
    def settings(self) -> list[tuple[str, str]]:
        """The data sets and partitions there are: each gets a section of its own."""
        return list(dict.fromkeys((run.data, run.heterogeneity) for run in self.runs))

    def of(self, data: str, heterogeneity: str) -> list[Run]:
        return [run for run in self.runs if (run.data, run.heterogeneity) == (data, heterogeneity)]


def read_runs(paths: Sequence[Path]) -> Collection:
    """Everything that is there; a file that cannot be read is one line among the problems, never the end."""
    problems: list[str] = []
    runs: list[Run] = []
    for path in paths:
        try:
            runs.append(_read_run(path, problems))
        except (OSError, ValueError) as error:
            problems.append(str(error))
    together: dict[str, list[Stored]] = {}
    for folder in dict.fromkeys(path.parent / FOLDER for path in paths):
        for name, stored in _read_results(folder, problems).items():
            together.setdefault(name, []).append(stored)
    return Collection(runs, together, problems)


def _read_run(path: Path, problems: list[str]) -> Run:
    config = path / "config.toml"
    if not config.exists():
        raise ValueError(f"{path}: not a run directory (no config.toml)")
    try:
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{config}: not valid TOML ({error})") from None
    metrics, results = _read_metrics(path, problems), _read_results(path / FOLDER, problems)
    return Run(path, settings, metrics, results, _read_partition(path / "partition.npz", problems))


def _read_metrics(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    try:
        return summary.metrics(path)
    except ValueError as error:
        problems.append(str(error))
        return []


def _read_partition(path: Path, problems: list[str]) -> NDArray[np.int64] | None:
    """Examples by client and class (clients, classes); see training/partition.py for the file."""
    if not path.exists():
        return None
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            sizes, labels = stored["sizes"], stored["labels"]
            owner = np.repeat(np.arange(len(sizes)), sizes)
            classes = int(labels.max()) + 1
            if len(sizes) * classes > COUNTED:
                return None
            cells = owner * classes + labels[stored["indices"]]
        return np.bincount(cells, minlength=len(sizes) * classes).reshape(-1, classes)
    except Exception as error:  # a damaged archive raises any of a dozen types; they all mean this
        problems.append(f"{path}: not readable as a partition ({error})")
        return None


def _read_results(folder: Path, problems: list[str]) -> dict[str, Stored]:
    found = {}
    for path in sorted(folder.glob("[!.]*.h5")):
        try:
            found[path.stem] = store.read(path)
        except ValueError as error:
            problems.append(str(error))
    return found
