"""What lies in run directories and results folders, read without torch. A file that is not as it should be is one line.

Every reader returns what is sound, and adds a line to `problems` for what is not: nothing in a file can end a report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from analysis import store
from analysis.store import Answer
from reports.inputs.personal import Personal, name_apart, read_answer, read_json
from reports.inputs.progress import Progress, determine_progress
from reports.inputs.recipes import Settings, find_table
from reports.inputs.summary import SKEWS
from training.storage import metrics, run_directory
from training.storage.atomic_files import DamagedError
from training.storage.npz import read_npz
from training.storage.run_directory import CONFIG, PROVENANCE, STATUS
from training.storage.verified_files import Json, parse_object, read_sealed, read_small

COUNTED = 10_000_000  # clients times classes; a picture of more would show nothing
TABLES = ("algorithm", "data", "partition", "model", "rounds", "evaluation", "swa")  # of a recipe, that reports read
T = TypeVar("T")


def attempt(problems: list[str], path: Path, read: Callable[..., T], *given: object) -> T | None:
    """Call a reader; where it fails, return None and add one line to the problems.

    problems: gets the line.
    path: of the file, which the line names.
    read: the reader. given: its arguments.
    """
    try:
        return read(*given)
    except ValueError as error:
        said = str(error)
    except Exception as error:  # damaged files raise any of a dozen types, MemoryError among them: they all mean this
        said = f"not readable ({type(error).__name__}: {error})"
    said = " ".join(said.split())
    problems.append(said if str(path) in said else f"{path}: {said}")
    return None


def read_settings(run: Path) -> Json:
    """Read a run's recipe as nested tables; ValueError if a setting that reports need has the wrong type."""
    path, settings = run / CONFIG, run_directory.read_settings(run)
    for name in TABLES:
        if not isinstance(settings.get(name, {}), Mapping):
            raise ValueError(f"{path}: [{name}] must be a table, got {settings[name]!r}")
    _check_kind(path, settings, "seed", int)
    for table, key, kind in (
        ("algorithm", "name", str),
        ("data", "name", str),
        ("partition", "name", str),
        ("rounds", "count", int),
        ("evaluation", "last", int),
        *(("partition", key, float) for key in SKEWS),
    ):
        _check_kind(path, find_table(settings, table), key, kind)
    return settings


def _check_kind(path: Path, table: Settings, key: str, kind: type) -> None:
    if key not in table:
        return
    value = table[key]
    right = isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
    if not right:
        words = {int: "a whole number", float: "a number", str: "a text"}[kind]
        raise ValueError(f"{path}: {key} must be {words}, got {value!r}")


def read_metrics(run: Path, problems: list[str]) -> list[Json] | None:
    """Read the records of finished rounds; None where they cannot be trusted."""
    return attempt(problems, run / "metrics.jsonl", metrics.read, run)


def read_progress(run: Path, settings: Settings, done: int | None, problems: list[str]) -> Progress:
    """Read how far a run came.

    settings: its recipe.
    done: rounds on record; None where the record cannot be trusted.
    """
    path = run / STATUS
    status = attempt(problems, path, run_directory.read_status, run) if path.exists() else None
    planned = find_table(settings, "rounds").get("count")
    found = determine_progress(status, done or 0, planned if isinstance(planned, int) else None)
    if found.state == "finished" and status is not None and done is not None and done < status["round"]:
        problems.append(
            f"{run / 'metrics.jsonl'}: records of {done} rounds, though the run finished round {status['round']}; "
            "its numbers over rounds are incomplete"
        )
    return found


def read_partition(path: Path, problems: list[str]) -> NDArray[np.int64] | None:
    """Read the examples by client and class (clients, classes); see training/data/partition.py for the file."""
    return attempt(problems, path, _count_examples, path) if path.exists() else None


def _count_examples(path: Path) -> NDArray[np.int64] | None:
    stored = read_npz(path)
    sizes, labels = stored["sizes"], stored["labels"]
    if sizes.dtype.kind not in "iu" or sizes.max(initial=0) > len(stored["indices"]):
        raise ValueError(f"{path}: the sizes of its clients do not fit its examples")
    owner = np.repeat(np.arange(len(sizes)), sizes.astype(np.int64))
    classes = int(labels.max()) + 1
    if len(sizes) * classes > COUNTED:
        return None
    cells = owner * classes + labels[stored["indices"]]
    return np.bincount(cells, minlength=len(sizes) * classes).reshape(-1, classes)


def read_answers(folder: Path, problems: list[str]) -> dict[Path, Answer]:
    """Read the answers of studies in a folder, by their files."""
    found = {path: attempt(problems, path, store.read, path) for path in store.find_answers(folder)}
    return {path: answer for path, answer in found.items() if answer is not None}


def read_personal(run: Path, answers: Mapping[str, Sequence[Answer]], problems: list[str]) -> tuple[Personal, ...]:
    """Read the scores of personal models: of the study `personal`, and of `landscape personal` (personal/*.json)."""
    found: list[Personal] = []
    for answer in answers.get("personal", ()):
        path = run / store.FOLDER / "personal" / f"{answer.question}.h5"
        found += attempt(problems, path, read_answer, answer) or []
    for path in sorted((run / "personal").glob("[!.]*.json")):
        one = attempt(problems, path, _read_score, path)
        if one is not None:
            found.append(one)
    return name_apart(found)


def _read_score(path: Path) -> Personal:
    return read_json(read_sealed(path))


def read_provenance(run: Path) -> Mapping[str, object]:
    """Read what a run was made with, as its provenance.json says; empty where that is missing or damaged."""
    try:
        return parse_object(read_small(run / PROVENANCE)) or {}
    except DamagedError:
        return {}


def read_digest(run: Path) -> str:
    """Read the digest of a run's recipe; empty where it is not on record."""
    return str(read_provenance(run).get("digest", ""))


def read_class_names(run: Path) -> tuple[str, ...]:
    """Read the names that the data set gives its classes; none where the run does not hold them.

    run: its directory. What is wrong with its provenance is told by `read_progress`.
    """
    try:
        content = parse_object(read_small(run / PROVENANCE)) or {}
    except DamagedError:
        return ()
    names = content.get("class_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)
