"""Runs with the results of one study in two seeds, and runs with other settings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

from analysis.store import Answer
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results.answers import write_answer


def two_methods(folder: Path, study: str, stored: Callable[[float], Answer]) -> Collection:
    """run_a and run_b are fedavg and differ in the seed alone; run_c is fedasam with SWA."""
    paths = {
        make_run(folder / "run_a", "fedavg", scale=1.0, studies=()): 1.0,
        make_run(folder / "run_b", "fedavg", seed=1, scale=0.5, studies=()): 0.5,
        make_run(folder / "run_c", "fedasam", swa=True, scale=0.8, studies=()): 0.8,
    }
    for path, scale in paths.items():
        assert write_answer(path, stored(scale)).parent.name == study
    return read_runs(list(paths))


def varied(path: Path, **settings: float) -> Path:
    """A run with other settings, named table_key."""
    config = path / "config.toml"
    content = tomllib.loads(config.read_text())
    for name, value in settings.items():
        table, _, key = name.partition("_")
        content.setdefault(table, {})[key] = value
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items() if not isinstance(value, dict)]
    for table, inside in content.items():
        if isinstance(inside, dict):
            lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in inside.items())]
    config.write_text("\n".join(lines) + "\n")
    return path
