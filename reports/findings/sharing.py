"""Copy what findings are rebuilt from: recipes, metrics and answers of finished runs, without their checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

from training.storage.run_directory import has_recipe, read_status

KEPT = ("config.toml", "metrics.jsonl", "status.json", "provenance.json", "partition.npz")
ANSWERS = "analysis"


def share_answers(source: Path, target: Path) -> list[str]:
    """Copy finished runs without checkpoints, and answers that compare runs; returns the names of the runs.

    source, target: folders of runs. A run that is there already is updated.
    """
    shared = []
    for run in sorted(one for one in source.iterdir() if has_recipe(one)):
        if read_status(run)["state"] not in ("finished", "diverged"):
            continue
        (target / run.name).mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            shutil.copy2(run / name, target / run.name / name)
        _copy_answers(run / ANSWERS, target / run.name / ANSWERS)
        shared.append(run.name)
    _copy_answers(source / ANSWERS, target / ANSWERS)
    return shared


def _copy_answers(source: Path, target: Path) -> None:
    """Copy answers only: no locks, no pieces of interrupted studies."""
    for path in sorted(source.glob("*/*.h5")):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
