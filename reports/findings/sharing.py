"""Share what findings are rebuilt from: recipes, metrics and answers of finished runs, without their checkpoints."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

from training.storage.atomic_files import write_atomically
from training.storage.run_directory import has_recipe, read_status

KEPT = ("config.toml", "metrics.jsonl", "status.json", "provenance.json", "partition.npz")
ANSWERS = "analysis"
ARCHIVE = "runs.tar.xz"  # beside the folder of runs that it holds


def pack_runs(runs: Path, archive: Path) -> list[str]:
    """Pack finished and diverged runs, and answers that compare runs; returns the names of the runs.

    runs: a folder of runs. archive: the file to write; the same runs give the same bytes.
    """
    names = [one.name for one in sorted(runs.iterdir()) if has_recipe(one) and _has_ended(one)]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as file:
        for path in [*(kept for name in names for kept in _list_kept(runs / name)), *_list_answers(runs)]:
            about = tarfile.TarInfo(path.relative_to(runs).as_posix())
            about.size = path.stat().st_size
            with path.open("rb") as content:
                file.addfile(about, content)
    archive.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(archive, packed.getvalue())
    return names


def unpack_runs(archive: Path, runs: Path) -> None:
    """Unpack runs; files that are there are replaced, and nothing is written outside the folder.

    archive: as `pack_runs` writes it. runs: the folder of runs.
    """
    runs.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "r:xz") as file:
        file.extractall(runs, filter="data")


def _has_ended(run: Path) -> bool:
    return read_status(run)["state"] in ("finished", "diverged")


def _list_kept(run: Path) -> Iterator[Path]:
    yield from (run / name for name in KEPT)
    yield from _list_answers(run)


def _list_answers(folder: Path) -> list[Path]:
    """Answers only: no locks, no pieces of interrupted studies."""
    return sorted((folder / ANSWERS).glob("*/*.h5"))
