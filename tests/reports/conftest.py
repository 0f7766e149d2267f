"""Run directories made up of files alone: reports never train and never measure."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from analysis import store
from analysis.store import Answer
from reports.inputs.runs import Collection, read_runs
from tests.reports.results import (
    curvature,
    drift,
    features,
    forgetting,
    incompatibility,
    interpolation,
    local_global,
    personal,
    plane,
    robustness,
    sensitivity,
    sharpness,
    surface,
    training,
)
from training.storage import metrics
from training.storage.atomic_files import write_atomically
from training.storage.run_directory import FORMAT

# every study's answer, as a function of the run's name and of a scale that tells runs apart
RESULTS: dict[str, Callable[[str, float], Answer]] = {
    "curvature": lambda _, scale: curvature.stored(scale),
    "drift": lambda _, scale: drift.stored(scale),
    "features": lambda _, scale: features.stored(scale),
    "forgetting": lambda _, scale: forgetting.stored(scale),
    "incompatibility": lambda _, scale: incompatibility.stored(scale),
    "interpolation": lambda *_: interpolation.stored(),
    "local_global": lambda _, scale: local_global.stored(scale),
    "personal": lambda _, scale: personal.stored(scale),
    "plane": lambda name, _: plane.stored([name]),
    "robustness": lambda _, scale: robustness.stored(scale),
    "sensitivity": lambda _, scale: sensitivity.stored(scale),
    "sharpness": lambda _, scale: sharpness.stored(scale),
    "surface": lambda name, _: surface.stored([name]),
    "training": lambda _, scale: training.stored(scale),
}


@cache
def _pack(study: str, name: str, scale: float) -> tuple[bytes, bytes]:
    """The bytes of an answer and their seal, made once: hundreds of runs are written, and netCDF takes its time."""
    content = store.pack(RESULTS[study](name, scale))
    return content, store.seal(content)


@pytest.fixture(scope="session", autouse=True)
def remembered_answers() -> Iterator[None]:
    """Parse each answer once: these tests read the same files hundreds of times, and HDF5 takes its time.

    Seals are checked every time; `tests/analysis` tests how answers are read.
    """
    parse, known = store._read_file, {}

    def parse_once(raw: BinaryIO) -> Answer:
        raw.seek(0)
        key = hashlib.sha256(raw.read()).digest()
        if key not in known:
            known[key] = parse(raw)
        return copy.deepcopy(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_read_file", parse_once)
        yield


def set_status(path: Path, state: str, round: int) -> Path:
    """Say how far a run is, sealed as training does."""
    content = {"format": FORMAT, "state": state, "round": round, "message": "", "files": {}}
    seal = hashlib.sha256(json.dumps(content, indent=2).encode()).hexdigest()
    (path / "status.json").write_text(json.dumps({**content, "sha256": seal}, indent=2) + "\n")
    return path


def make_run(
    path: Path,
    algorithm: str,
    *,
    seed: int = 0,
    scale: float = 1.0,
    data: str = "digits",
    swa: bool = False,
    studies: Sequence[str] = tuple(RESULTS),
) -> Path:
    """A run directory of three rounds, with results of these studies."""
    (path / "analysis").mkdir(parents=True)
    averaging = "[swa]\ncycle = 5\n" if swa else ""
    (path / "config.toml").write_text(
        f'seed = {seed}\n[data]\nname = "{data}"\n[algorithm]\nname = "{algorithm}"\n'
        f'[partition]\nname = "dirichlet_total"\nalpha = 0.5\n{averaging}[rounds]\ncount = 3\n'
    )
    records = [
        {
            "round": t,
            "train_loss": 2.0 / t,
            "accuracy": 0.1 * t * scale,
            "swa_accuracy": 0.9 if swa and t == 3 else None,
            "recorded": {"proximal_cosine": {"mean": -0.1 * scale, "by_step": [None, -0.2 * scale, 0.0]}},
        }
        for t in (1, 2, 3)
    ]
    for record in records:
        metrics.append(path, record)
    set_status(path, "finished", 3)
    labels = np.array([0, 1, 1, 2, 2, 0, 1, 2])
    np.savez(path / "partition.npz", sizes=np.array([4, 1, 2]), labels=labels, indices=np.arange(7))
    for study in studies:
        name = path.name if study in ("plane", "surface") else ""  # only these name their runs
        write_atomically(path / "analysis" / study / "default.h5", *_pack(study, name, scale))
    return path


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    return read_runs(
        [
            make_run(tmp_path / "run_a", "fedavg"),
            make_run(tmp_path / "run_b", "fedavg", seed=1, scale=0.5),
            make_run(tmp_path / "run_c", "fedasam", swa=True, scale=0.8),
        ]
    )
