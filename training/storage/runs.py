"""Which run directories a command line means. This file imports no torch."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path

MARKS = ("config.toml", "status.json", "partition.npz", "checkpoints")
DEEP = 3  # folders below the given one in which runs are looked for
BESIDE = ("analysis", "report")  # what other commands put beside runs, and a shell's * names too


def find_runs(given: Sequence[Path]) -> list[Path]:
    """The runs that some paths mean, each once: run directories, folders of them, and patterns such as "runs/*sam*".

    Where several paths are given, results that lie beside runs (analysis/, report/) are passed over.
    """
    found: dict[Path, None] = {}
    for path in given:
        if len(given) > 1 and path.name in BESIDE and not is_run(path):
            continue
        found.update(dict.fromkeys(_meant(path)))
    if not found:
        raise ValueError(f"no run among {', '.join(map(str, given))}; expected run directories, or folders of them")
    return list(found)


def _meant(path: Path) -> list[Path]:
    if path.exists() or not glob.has_magic(str(path)):
        return [path] if is_run(path) else sorted(runs_in(path)) or [require_run(path)]
    matches = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
    runs = [run for match in matches for run in ([match] if is_run(match) else sorted(runs_in(match)))]
    if not runs:
        raise ValueError(f"{path}: no run directory matches this pattern{_instead(sorted(runs_in(path.parent)))}")
    return runs


def is_run(path: Path) -> bool:
    """Whether a path is a run directory, perhaps a damaged one."""
    return path.is_dir() and any((path / name).exists() for name in MARKS)


def require_run(path: Path) -> Path:
    """Return a run directory, or say what was expected instead of what came."""
    if is_run(path):
        return path
    wanted = "expected a run directory, such as landscape train makes under runs/"
    if not path.exists():
        raise ValueError(f"{path} does not exist; {wanted}{_instead(sorted(runs_in(path.parent)))}")
    if not path.is_dir():
        raise ValueError(f"{path} is a file; {wanted}{_instead(sorted(runs_in(path.parent)))}")
    raise ValueError(f"{path} is no run, it has no {MARKS[0]}; {wanted}{_instead(sorted(runs_in(path)))}")


def runs_in(folder: Path, deep: int = DEEP) -> Iterator[Path]:
    """The run directories in a folder, and in its folders."""
    if not folder.is_dir() or not deep:
        return
    for path in folder.iterdir():
        if path.name.startswith(".") or not path.is_dir():
            continue
        if (path / MARKS[0]).exists():
            yield path
        else:
            yield from runs_in(path, deep - 1)


def _instead(runs: Sequence[Path]) -> str:
    if not runs:
        return ""
    more = f"\n  ... and {len(runs) - 10} more" if len(runs) > 10 else ""
    return ". Runs near there:" + "".join(f"\n  {run}" for run in runs[:10]) + more
