"""Runs as a report sees them: settings, metrics and stored results, read from files alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from analysis.store import DEFAULT, FOLDER, Answer, find_answers
from reports.inputs.personal import Personal
from reports.inputs.progress import Progress
from reports.inputs.reading import (
    attempt,
    read_answers,
    read_class_names,
    read_digest,
    read_metrics,
    read_partition,
    read_personal,
    read_progress,
    read_settings,
)
from reports.inputs.recipes import Settings, as_number, find_table, find_whole
from reports.inputs.summary import SKEWS
from reports.names import name_data, name_method, name_partition
from training.storage.metrics import SCORES, find_score
from training.storage.run_directory import CONFIG, PARTITION, has_recipe
from training.storage.verified_files import Json


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory as a report sees it, or a model that was not trained here and has answers of studies only."""

    path: Path
    settings: Settings  # nested, as in config.toml
    metrics: list[Json]  # one record per finished round
    answers: dict[str, tuple[Answer, ...]] = field(default_factory=dict)  # study -> one answer for each question
    class_counts: NDArray[np.int64] | None = None  # training examples by client and class; None: not on disk
    progress: Progress = field(default_factory=Progress)  # how far it came
    personal: tuple[Personal, ...] = ()  # scores of models made for clients
    called: str = ""  # where the folder's name is not enough
    class_names: tuple[str, ...] = ()  # as the data set gives them; empty: it does not, or they are not on disk

    @property
    def name(self) -> str:
        return self.called or self.path.name

    @property
    def algorithm(self) -> str:
        """The method by its short name, the key of colours: SWA is part of it."""
        # a run of another framework may have a method that is none of ours
        own = find_table(self.settings, "adopted").get("method")
        name = str(own or find_table(self.settings, "algorithm").get("name", self.name))
        return f"{name} + SWA" if "swa" in self.settings else name

    @property
    def method(self) -> str:
        """The method as it is printed; a model that was not trained here has its own name."""
        return name_method(self.algorithm) if self.settings else self.algorithm

    @property
    def data(self) -> str:
        return str(find_table(self.settings, "data").get("name", "own data"))

    @property
    def data_name(self) -> str:
        """The data set as it is printed."""
        return name_data(self.data)

    @property
    def seed(self) -> int:
        return find_whole(self.settings, "seed", 0)

    @cached_property
    def score(self) -> str:
        """The metric by which models are compared: accuracy, or miou where pixels are classified."""
        return find_score(self.metrics)

    @property
    def dealt_by(self) -> str:
        """What `class_counts` counts: the class of an example, or its user where only its pixels have classes."""
        return "user" if self.score == "miou" else "class"

    @property
    def heterogeneity(self) -> str:
        """How the data were distributed over clients: the printed name of the partition, and its skew."""
        partition = find_table(self.settings, "partition")
        skew = next(((key, as_number(partition[key])) for key in SKEWS if key in partition), None)
        return name_partition(str(partition.get("name", "")), skew)

    @property
    def chance(self) -> float:
        """Accuracy of guessing, in per cent; NaN where the number of classes is not on record.

        A mean IoU above it is better than that of naming one class everywhere.
        """
        return (
            100.0 / self.class_counts.shape[1]
            if self.class_counts is not None and self.class_counts.shape[1]
            else math.nan
        )

    def describe(self, method: str) -> str:
        """Describe the run by its method, data, partition and seed.

        method: its method, with the settings that tell it from other runs of the same method.
        """
        known = [method, self.data, self.heterogeneity, f"seed {self.seed}" if self.settings else ""]
        return ", ".join(one for one in known if one)

    def series(self, key: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the rounds in which a metric was recorded, and its values there.

        key: the metric, as metrics.jsonl names it.
        """
        known = [(record["round"], record[key]) for record in self.metrics if record.get(key) is not None]
        rounds, values = zip(*known, strict=True) if known else ((), ())
        return np.asarray(rounds, dtype=np.float64), np.asarray(values, dtype=np.float64)

    def answer(self, study: str) -> Answer | None:
        """Return the answer of a study that a figure shows (see `Collection.narrow`), or else the first."""
        found = self.answers.get(study, ())
        return found[0] if found else None

    def measured(self, study: str) -> xr.Dataset | None:
        """Return the numbers of a study; None where it was not run."""
        found = self.answer(study)
        return found.data if found is not None else None


@dataclass(frozen=True, eq=False)
class Collection:
    """The runs of a report, the answers of studies that compare runs, and a line for each unreadable file."""

    runs: list[Run]
    together: dict[str, list[Answer]]  # study -> answers that compare runs
    problems: list[str]

    @cached_property
    def settings(self) -> list[tuple[str, str]]:
        """Every pair of data set and partition; each has its own section."""
        return list(dict.fromkeys((run.data, run.heterogeneity) for run in self.runs))

    def select(self, data: str, heterogeneity: str) -> list[Run]:
        """Select the runs on a data set and a partition."""
        return [run for run in self.runs if (run.data, run.heterogeneity) == (data, heterogeneity)]

    def questions(self, study: str) -> list[str]:
        """List the questions that a study has answers to, the default one first."""
        found = [answer for run in self.runs for answer in run.answers.get(study, ())]
        names = {answer.question for answer in (*found, *self.together.get(study, ()))}
        return sorted(names, key=lambda name: (name != DEFAULT, name))

    def narrow(self, questions: Mapping[str, str]) -> Collection:
        """Keep one question for some studies, because a figure shows one at a time.

        questions: study -> the question whose answers are kept.
        """
        return self.keep({study: [question] for study, question in questions.items()})

    def keep(self, questions: Mapping[str, Sequence[str]]) -> Collection:
        """Keep only some questions for some studies.

        questions: study -> the questions whose answers are kept; other studies keep all.
        """

        def select(study: str, answers: Iterable[Answer]) -> list[Answer]:
            return [one for one in answers if study not in questions or one.question in questions[study]]

        runs = [
            replace(run, answers={study: tuple(select(study, some)) for study, some in run.answers.items()})
            for run in self.runs
        ]
        together = {study: select(study, some) for study, some in self.together.items()}
        return Collection(runs, together, self.problems)


def name_score(runs: Iterable[Run]) -> str:
    """Name the score of runs, for headings: "accuracy", "mIoU", or "accuracy or mIoU" where they differ."""
    return " or ".join(dict.fromkeys(SCORES[run.score] for run in runs)) or SCORES["accuracy"]


def label_score(runs: Iterable[Run]) -> str:
    """Name the score of runs on an axis: "test accuracy (%)", "test mIoU (%)"."""
    return f"test {name_score(runs)} (%)"


def name_accuracy(runs: Iterable[Run]) -> str:
    """Name the share of right predictions of runs: "pixel accuracy" where pixels are classified, else "accuracy"."""
    return " or ".join(dict.fromkeys("pixel accuracy" if run.score == "miou" else "accuracy" for run in runs))


def read_runs(paths: Sequence[Path]) -> Collection:
    """Read runs and the answers about them; a file that cannot be read becomes a line among the problems.

    paths: run directories, or folders of answers as `landscape analyze --model` and `--out` write them.
    """
    problems: list[str] = []
    directories = [path for path in paths if has_recipe(path)]
    found = [attempt(problems, path, _read_run, path, problems) for path in directories]
    runs = [run for run in found if run is not None]
    together: dict[str, list[Answer]] = {}
    for folder in dict.fromkeys(path.parent / FOLDER for path in directories):
        for answer in read_answers(folder, problems).values():
            together.setdefault(answer.study, []).append(answer)
    beside = {(path.parent / FOLDER).absolute() for path in directories}
    for path in paths:
        folder = path if holds_answers(path) else path / FOLDER
        if path in directories or folder.absolute() in beside:
            continue
        if not holds_answers(folder):
            problems.append(f"{path}: neither a run directory (no {CONFIG}) nor a folder of answers (no .h5)")
        for file, answer in read_answers(folder, problems).items():
            _add_answer(runs, together, folder, file, answer, problems)
    return Collection(_drop_copies(_name_apart(runs), problems), together, problems)


def holds_answers(folder: Path) -> bool:
    """Whether a folder holds answers of studies."""
    return bool(find_answers(folder))


def _read_run(path: Path, problems: list[str]) -> Run:
    settings = read_settings(path)
    metrics, answers = read_metrics(path, problems), group_by_study(read_answers(path / FOLDER, problems).values())
    return Run(
        path,
        settings,
        metrics or [],
        answers,
        read_partition(path / PARTITION, problems),
        read_progress(path, settings, None if metrics is None else len(metrics), problems),
        read_personal(path, answers, problems),
        class_names=read_class_names(path),
    )


def group_by_study(answers: Iterable[Answer]) -> dict[str, tuple[Answer, ...]]:
    """Group answers by study, the default question first."""
    found: dict[str, list[Answer]] = {}
    for answer in sorted(answers, key=lambda one: (one.question != DEFAULT, one.question)):
        found.setdefault(answer.study, []).append(answer)
    return {study: tuple(some) for study, some in found.items()}


def _name_apart(runs: Sequence[Run]) -> list[Run]:
    """Add the folder's name to runs of the same name: everything is looked up by name."""
    names = [run.called or run.path.absolute().name for run in runs]
    found: dict[str, Run] = {}
    for run, name in zip(runs, names, strict=True):
        called = name if names.count(name) == 1 else f"{run.path.absolute().parent.name}/{name}"
        while called in found:
            called += "'"
        found[called] = replace(run, called=called)
    return list(found.values())


def _drop_copies(runs: Sequence[Run], problems: list[str]) -> list[Run]:
    """Drop runs with the settings and the seed of another: they would count as further seeds."""
    kept: list[Run] = []
    for run in runs:
        twin = next((other for other in kept if run.settings and _get_recipe(other) == _get_recipe(run)), None)
        if twin is None:
            kept.append(run)
        else:
            problems.append(f"{run.name}: left out, it has every setting and the seed of {twin.name}")
    return kept


def _get_recipe(run: Run) -> Settings:
    return {key: value for key, value in run.settings.items() if key != "name"}


def _add_answer(
    runs: list[Run],
    together: dict[str, list[Answer]],
    folder: Path,
    file: Path,
    answer: Answer,
    problems: list[str],
) -> None:
    """Give an answer from outside a run directory to the run it is about; a model that is no run here becomes one.

    folder: the folder of answers. file: where in it the answer lies.
    """
    given = answer.provenance.get("subjects")
    subjects = [str(one) for one in given] if isinstance(given, list) else []
    about = subjects[0] if subjects else folder.absolute().name
    if len(subjects) > 1:
        together.setdefault(answer.study, []).append(answer)
        return
    places = [place for place, run in enumerate(runs) if _is_about(answer, about, run, folder)]
    if not places:
        runs.append(Run(folder, {}, [], progress=Progress("given"), called=about))
        places = [len(runs) - 1]
    run = runs[places[0]]
    kept = [one for some in run.answers.values() for one in some]
    if len(places) > 1 or any((one.study, one.question) == (answer.study, answer.question) for one in kept):
        why = "several runs have this name" if len(places) > 1 else "the run has an answer of its own"
        problems.append(f"{file}: an answer about {about} that is not shown ({why})")
        return
    answers = group_by_study([*kept, answer])
    personal = run.personal or read_personal(run.path, answers, problems)
    runs[places[0]] = replace(run, answers=answers, personal=personal)


def _is_about(answer: Answer, name: str, run: Run, folder: Path) -> bool:
    """Whether an answer is about a run: by the digest of its recipe, where both have one, else by its name."""
    if run.progress.state == "given":
        return run.called == name and run.path == folder
    if run.path.absolute().name != name:
        return False
    inputs = answer.provenance.get("inputs")
    if not isinstance(inputs, list) or not inputs or not isinstance(inputs[0], Mapping):
        return True
    asked = inputs[0].get("run")
    return asked is not None and read_digest(run.path) in ("", asked)
