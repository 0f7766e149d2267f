"""Find what may be deleted in run directories, and delete it while holding their locks. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from training.console.summaries import find_standing
from training.runs import Places, list_paths
from training.storage import lock, run_directory
from training.storage.atomic_files import remove
from training.storage.run_directory import ANALYSIS, checkpoint_path, checkpoint_rounds, record_removed

INTERRUPTED = "piece of an interrupted study"
HALF_WRITTEN = "half-written file of a killed process"
DAMAGED = "damaged file that was moved aside"
CHECKPOINT = "checkpoint before the last, of a finished run"


@dataclass(frozen=True)
class Removable:
    """Something that may be deleted.

    run: the directory whose lock must be held.
    path: the file or folder.
    why: what it is.
    bytes: its size.
    """

    run: Path
    path: Path
    why: str
    bytes: int


def find_removable(runs: Places, *, checkpoints: bool = False) -> list[Removable]:
    """Find what may be deleted in runs, and in the folder of answers beside them.

    runs: run directories, folders of runs, or patterns.
    checkpoints: whether to include all but the last checkpoint of finished runs. Earlier rounds can then no longer be
        measured.
    """
    found: list[Removable] = []
    directories = run_directory.find_runs(list_paths(runs))
    for run in directories:
        found += [Removable(run, path, why, _measure(path)) for path, why in _find_leftovers(run)]
        if checkpoints and find_standing(run)["state"] == "finished":
            old = (checkpoint_path(run, round) for round in checkpoint_rounds(run)[:-1])
            found += [Removable(run, path, CHECKPOINT, _measure(path)) for path in old]
    for folder in dict.fromkeys(run.parent / ANALYSIS for run in directories):
        found += [Removable(folder, path, why, _measure(path)) for path, why in _find_leftover_answers(folder)]
    return found


def _find_leftovers(run: Path) -> Iterator[tuple[Path, str]]:
    for folder in (run, run / "checkpoints", run / "personal"):
        yield from ((path, HALF_WRITTEN) for path in sorted(folder.glob(".*.tmp")))
        yield from ((path, DAMAGED) for path in sorted(folder.glob("*.damaged*")))
    yield from _find_leftover_answers(run / ANALYSIS)


def _find_leftover_answers(folder: Path) -> Iterator[tuple[Path, str]]:
    for study in sorted(path for path in folder.glob("[!.]*") if path.is_dir()):
        for path in sorted(study.iterdir()):
            if path.name.endswith(".tmp"):
                yield path, HALF_WRITTEN
            elif path.is_dir() and path.name.startswith("."):
                yield path, INTERRUPTED
            elif ".damaged" in path.suffix:
                yield path, DAMAGED


def remove_all(found: Iterable[Removable]) -> int:
    """Delete what was found, and return the number of bytes freed; a run that is being written is an error.

    found: as `find_removable` returns it.
    """
    freed = 0
    groups: dict[Path, list[Removable]] = {}
    for one in found:
        groups.setdefault(one.run, []).append(one)
    for run, some in groups.items():
        with lock.hold(run, "clean"):
            rounds = [int(one.path.name.removeprefix("round_")) for one in some if one.why == CHECKPOINT]
            if rounds:
                record_removed(run, rounds)  # first: a checkpoint that is missing without a record is damage
            for one in some:
                remove(one.path)
                freed += one.bytes
    return freed


def _measure(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*") if one.is_file())
