"""Open the answers of runs as Datasets, and verify files against their hashes. Imports no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from analysis import store
from analysis.store import FOLDER, Answer
from landscape.errors import choose
from training import verification
from training.runs import Places, list_paths
from training.storage import run_directory


def list_answers(run: str | os.PathLike[str]) -> dict[str, list[str]]:
    """List the questions that have been answered: study -> names of its questions.

    run: a run, or a folder of answers.
    """
    found: dict[str, list[str]] = {}
    for path in store.find_answers(_find_folder(Path(run))):
        found.setdefault(path.parent.name, []).append(path.stem)
    return found


def open_answer(run: str | os.PathLike[str], study: str = "", question: str = "") -> xr.Dataset:
    """Open the answer of a study as a Dataset, with the settings and the provenance as attributes.

    run: a run, a folder of answers, or the file of an answer.
    study: its name; not needed for a file.
    question: the name of the question; by default the one with default settings, or the only one.
    """
    path = Path(run)
    if path.suffix == ".h5":
        return to_dataset(store.read(path))
    known = list_answers(path)
    if not known:
        raise ValueError(f"{path}: no study has been run. Call analysis.analyze(run, '{study or 'curvature'}') first")
    names = known[choose("study with an answer", study, known)]
    usual = store.DEFAULT if store.DEFAULT in names else names[0] if len(names) == 1 else ""
    if not question and not usual:
        raise ValueError(f"{study} has several answers: choose question= among {', '.join(names)}")
    chosen = choose("question", question or usual, names)
    return to_dataset(store.read(_find_folder(path) / study / f"{chosen}.h5"))


def to_dataset(answer: Answer) -> xr.Dataset:
    """Return the numbers of an answer, with study, question and settings as attributes."""
    settings = {f"settings.{key}": value for key, value in answer.settings.items() if value is not None}
    return answer.data.assign_attrs(study=answer.study, question=answer.question, **settings)


def _find_folder(path: Path) -> Path:
    return path / FOLDER if (path / FOLDER).is_dir() else path


@dataclass(frozen=True)
class Soundness:
    """What a check of a folder found.

    path: a run, or a folder whose answers compare runs.
    problems: one line for each damaged file.
    checkpoints: how many there are; None for a folder that is not a run.
    answers: how many there are.
    """

    path: Path
    problems: list[str]
    checkpoints: int | None
    answers: int

    @property
    def description(self) -> str:
        """A line that says what was checked."""
        counts = [] if self.checkpoints is None else [f"{self.checkpoints} checkpoints"]
        counts += [f"{self.answers} results of analyze"] if self.answers else []
        return f"sound: {', '.join(counts)}"


def check(runs: Places) -> list[Soundness]:
    """Verify every file of runs and of their answers against its stored hash.

    runs: run directories, folders of runs, or patterns.
    """
    given, checked = list_paths(runs), []
    found = run_directory.find_runs(given)
    shared = [path for path in given if path.is_dir() and path not in found]  # may hold answers that compare runs
    for folder in [*found, *shared]:
        answers = store.find_answers(folder / FOLDER)
        is_run = folder in found
        problems = verification.check_run(folder) if is_run else []
        problems += [text for text in map(store.verify, answers) if text]
        if is_run or answers:
            kept = len(run_directory.checkpoint_rounds(folder)) if is_run else None
            checked.append(Soundness(folder, problems, kept, len(answers)))
    return checked
