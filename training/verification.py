"""Check a run directory against the hashes that were written with it. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from training import recipe_tables
from training.data import partition
from training.personal import scores
from training.storage import metrics
from training.storage.atomic_files import DamagedError
from training.storage.run_directory import (
    CHECKPOINTS,
    CONFIG,
    METRICS,
    PARTITION,
    PROVENANCE,
    SMALL_FILES,
    STATUS,
    Status,
    checkpoint_path,
    checkpoint_rounds,
    read_adopted_rounds,
    read_provenance,
    read_status,
    removed_rounds,
)
from training.storage.tensors import check_checkpoint
from training.storage.verified_files import require_inside, verify

READERS: dict[str, Callable[[Path], object]] = {
    CONFIG: recipe_tables.read,
    PARTITION: lambda run: partition.load(run / PARTITION),
    PROVENANCE: read_provenance,
    METRICS: metrics.read,
}


def check_run(run: Path) -> list[str]:
    """List every problem of a run directory.

    run: the directory; the run need not be finished.
    Returns one line for each problem, none for an intact run.
    """
    if _stopped_at_once(run):
        return [f"{run}: stopped before its first round; the same landscape train resumes it"]
    problems: list[str] = []
    status: Status | None = None
    try:
        status = read_status(run)
    except DamagedError as error:
        problems.append(str(error))
    for name in SMALL_FILES:
        try:
            _check_small_file(run, name, status)
        except ValueError as error:
            problems.append(str(error))
    problems += scores.find_problems(run)
    rounds = checkpoint_rounds(run)
    named = {checkpoint_path(run, round).name for round in rounds}
    for path in sorted((run / CHECKPOINTS).glob("[!.]*")):
        problem = check_checkpoint(path) if path.name in named else f"{path}: not a checkpoint"
        problems += [problem] if problem else []
    return problems or list(_find_gaps(run, read_status(run), rounds))


def _check_small_file(run: Path, name: str, status: Status | None) -> None:
    require_inside(run / name, run)
    if not (run / name).is_file():
        raise DamagedError(f"{run / name}: missing")
    expected = status["files"].get(name) if status is not None else None
    if expected is not None:
        verify(run / name, expected)
    READERS[name](run)


def _stopped_at_once(run: Path) -> bool:
    """Tell whether a run was killed so early that it has no status yet, and nothing that could be lost."""
    begun = (run / CONFIG).is_file() and not (run / STATUS).exists()
    path = run / METRICS
    return begun and max(checkpoint_rounds(run), default=0) == 0 and not (path.exists() and path.stat().st_size)


def _find_gaps(run: Path, status: Status, rounds: list[int]) -> Iterator[str]:
    """Name what is missing in a run whose files are all intact."""
    recipe = recipe_tables.read(run)
    last = max(rounds, default=0) if status["state"] == "running" else status["round"]
    done = len(metrics.read(run))
    if done < last:  # first: `last` may be any number, and only as many rounds as were recorded are looked for
        yield f"{run / METRICS}: ends at round {done}, but round {last} was reached"
        return
    every = recipe.checkpoints.every
    expected = {0, *range(0, last + 1, every), last} if recipe.adopted is None else set(read_adopted_rounds(run))
    yield from (
        f"{checkpoint_path(run, round)}: missing" for round in sorted(expected - set(rounds) - set(removed_rounds(run)))
    )
