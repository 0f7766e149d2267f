"""Three runs that hold one study's results: two seeds of FedAvg, and FedASAM with SWA."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from analysis.store import Answer
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results.answers import write_answer

SCALES = (1.0, 2.0, 3.0)  # of run_a, run_b and run_c: their numbers are told apart by them


def three_runs(folder: Path, study: str, stored: Callable[[float], Answer]) -> Collection:
    paths = [
        make_run(folder / "run_a", "fedavg", studies=()),
        make_run(folder / "run_b", "fedavg", seed=1, studies=()),
        make_run(folder / "run_c", "fedasam", swa=True, studies=()),
    ]
    for path, scale in zip(paths, SCALES, strict=True):
        assert write_answer(path, stored(scale)).parent.name == study
    return read_runs(paths)
