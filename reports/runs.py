"""Runs as a report sees them: settings, metrics and stored results, read from files alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.store import Stored, Table
from analysis.summary import FOLDER, SKEWS
from reports.personal import Personal
from reports.reading import (
    attempt,
    read_digest,
    read_metrics,
    read_partition,
    read_personal,
    read_results,
    read_settings,
    read_standing,
)
from reports.standing import Standing
from training.storage.run_directory import CONFIG, PARTITION, has_recipe


@dataclass(frozen=True, eq=False)
class Run:
    """One run directory, or a model that was not trained here: it has results only."""

    path: Path
    settings: dict[str, Any]  # nested, as in config.toml
    metrics: list[dict[str, Any]]  # one record per finished round
    results: dict[str, Stored] = field(default_factory=dict)  # study -> what it found
    dealt: NDArray[np.int64] | None = None  # training examples by client and class, where the partition is on disk
    standing: Standing = field(default_factory=Standing)  # how far it came
    personal: tuple[Personal, ...] = ()  # scores of models made for clients
    called: str = ""  # where the folder's name is not enough

    @property
    def name(self) -> str:
        return self.called or self.path.name

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

    @property
    def chance(self) -> float:
        """Accuracy of guessing, in per cent; NaN where the number of classes is not on record."""
        return 100.0 / self.dealt.shape[1] if self.dealt is not None and self.dealt.shape[1] else math.nan

    def titled(self, method: str) -> str:
        """What it is, in words. method: its method, and the settings that tell it from other runs of that."""
        known = [method, self.data, self.heterogeneity, f"seed {self.seed}" if self.settings else ""]
        return ", ".join(one for one in known if one)

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
    """Everything that is there; a file that cannot be read is one line among the problems, never the end.

    A path is a run directory, or a folder of answers as `landscape analyze --model` and `--out` write them.
    """
    problems: list[str] = []
    directories = [path for path in paths if has_recipe(path)]
    found = [attempt(problems, path, _read_run, path, problems) for path in directories]
    runs = [run for run in found if run is not None]
    together: dict[str, list[Stored]] = {}
    for folder in dict.fromkeys(path.parent / FOLDER for path in directories):
        for name, stored in read_results(folder, problems).items():
            together.setdefault(name, []).append(stored)
    beside = {(path.parent / FOLDER).absolute() for path in directories}
    for path in paths:
        folder = path if holds_answers(path) else path / FOLDER
        if path in directories or folder.absolute() in beside:
            continue
        if not holds_answers(folder):
            problems.append(f"{path}: neither a run directory (no {CONFIG}) nor a folder of answers (no .h5)")
        for name, stored in read_results(folder, problems).items():
            _take_in(runs, together, folder / f"{name}.h5", stored, problems)
    return Collection(_without_copies(_named_apart(runs), problems), together, problems)


def holds_answers(folder: Path) -> bool:
    """Whether results of studies lie in a folder itself."""
    return any(folder.glob("[!.]*.h5"))


def _read_run(path: Path, problems: list[str]) -> Run:
    settings = read_settings(path / CONFIG)
    metrics, results = read_metrics(path, problems), read_results(path / FOLDER, problems)
    return Run(
        path,
        settings,
        metrics or [],
        results,
        read_partition(path / PARTITION, problems),
        read_standing(path, settings, None if metrics is None else len(metrics), problems),
        read_personal(path, results, problems),
    )


def _named_apart(runs: Sequence[Run]) -> list[Run]:
    """Runs of the same name in different folders get their folders' names too: everything is looked up by name."""
    names = [run.called or run.path.absolute().name for run in runs]
    found: dict[str, Run] = {}
    for run, name in zip(runs, names, strict=True):
        called = name if names.count(name) == 1 else f"{run.path.absolute().parent.name}/{name}"
        while called in found:
            called += "'"
        found[called] = replace(run, called=called)
    return list(found.values())


def _without_copies(runs: Sequence[Run], problems: list[str]) -> list[Run]:
    """The runs but for those that repeat another, seed and all: they would count as further seeds."""
    kept: list[Run] = []
    for run in runs:
        twin = next((other for other in kept if run.settings and _recipe(other) == _recipe(run)), None)
        if twin is None:
            kept.append(run)
        else:
            problems.append(f"{run.name}: left out, it has every setting and the seed of {twin.name}")
    return kept


def _recipe(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.settings.items() if key != "name"}


def _take_in(
    runs: list[Run], together: dict[str, list[Stored]], path: Path, stored: Stored, problems: list[str]
) -> None:
    """Give an answer from outside a run directory to whom it is about; a model that is no run here becomes one."""
    given = stored.provenance.get("subjects")
    subjects = [str(one) for one in given] if isinstance(given, list) else []
    name, whose = path.stem, subjects[0] if subjects else path.absolute().parent.name
    if len(subjects) > 1:
        together.setdefault(name, []).append(stored)
        return
    places = [place for place, run in enumerate(runs) if _is_about(stored, whose, run, path.parent)]
    if not places:
        runs.append(Run(path.parent, {}, [], standing=Standing("given"), called=whose))
        places = [len(runs) - 1]
    run = runs[places[0]]
    if len(places) > 1 or name in run.results:
        why = "several runs have this name" if len(places) > 1 else "the run has an answer of its own"
        problems.append(f"{path}: an answer about {whose} that is not shown ({why})")
        return
    results = {**run.results, name: stored}
    runs[places[0]] = replace(run, results=results, personal=run.personal or read_personal(run.path, results, problems))


def _is_about(stored: Stored, whose: str, run: Run, folder: Path) -> bool:
    """Whether an answer is about a run: by the digest of its recipe, where both have one, else by its name."""
    if run.standing.state == "given":
        return run.called == whose and run.path == folder
    if run.path.absolute().name != whose:
        return False
    inputs = stored.provenance.get("inputs")
    if not isinstance(inputs, list) or not inputs or not isinstance(inputs[0], Mapping):
        return True
    asked = inputs[0].get("run")
    return asked is not None and read_digest(run.path) in ("", asked)
