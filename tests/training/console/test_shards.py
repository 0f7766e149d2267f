"""Sweeps in parts and side by side: the same runs with the same checkpoints."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.training.executors.test_processes import fingerprints
from training import config
from training.console import jobs, sweep
from training.console.sweep import parse_shard, train_all

RECIPE = """
data = {name = "synthetic", examples = 60, test_examples = 20, shape = [1, 2, 2], classes = 3}
model = {name = "mlp", hidden = [5]}
partition = {name = "iid", clients = 3}
local = {batch_size = 8}
rounds = {count = 2, participants = 2}
[sweep]
seed = [0, 1, 2]
"local.lr" = [0.1, 0.01]
"""


def load(folder: Path) -> list[config.Recipe]:
    (folder / "sweep.toml").write_text(RECIPE)
    return config.load(folder / "sweep.toml")


def read_all(folder: Path) -> dict[str, dict[str, str]]:
    """The checkpoints of every run in a folder, by name."""
    return {run.name: fingerprints(run) for run in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The runs of the sweep, trained one after the other."""
    folder = tmp_path_factory.mktemp("whole")
    train_all(load(folder), folder / "runs", console=Console(file=io.StringIO()), backend="serial")
    return read_all(folder / "runs")


def test_shards_are_the_whole_sweep(whole: dict[str, dict[str, str]], tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    parts = [
        train_all(load(tmp_path), tmp_path / "runs", console=console, backend="serial", shard=f"{place}/4")
        for place in range(4)
    ]
    assert [len(part) for part in parts] == [2, 2, 1, 1]
    assert read_all(tmp_path / "runs") == whole
    text = io.StringIO()
    assert train_all(load(tmp_path), tmp_path / "runs", console=Console(file=text), shard="7/8") == []
    assert "fewer runs than shards" in text.getvalue()


def test_runs_side_by_side_are_those_one_by_one(whole: dict[str, dict[str, str]], tmp_path: Path) -> None:
    text = io.StringIO()
    console = Console(file=text, width=200)
    paths = train_all(load(tmp_path), tmp_path / "runs", console=console, backend="processes", workers=2)
    assert read_all(tmp_path / "runs") == whole
    assert [path.name for path in paths] == [path.name for path in paths if path.exists()]
    assert "run 6 of 6" in text.getvalue()
    train_all(load(tmp_path), tmp_path / "runs", console=console, backend="processes", workers=2)
    assert text.getvalue().count("finished already") == 6


def test_clients_are_spread_where_that_keeps_more_workers_busy(tmp_path: Path) -> None:
    recipes = load(tmp_path)
    console = Console(file=io.StringIO())

    def is_wide(backend: str, workers: int, count: int) -> bool:
        return sweep._is_wide(recipes[:count], sweep._How(tmp_path, console, backend, workers, sweep.Cluster()))

    assert is_wide("processes", 2, 6)
    assert is_wide("ray", 2, 2)
    assert not is_wide("processes", 2, 1)
    assert not is_wide("serial", 2, 6)
    assert not is_wide("auto", 2, 6)
    wide = [one.model_copy(update={"rounds": one.rounds.model_copy(update={"participants": 3})}) for one in recipes[:2]]
    assert not sweep._is_wide(wide, sweep._How(tmp_path, console, "processes", 4, sweep.Cluster()))


@pytest.mark.parametrize("text", ["2/2", "1", "-1/2", "a/b", "1/0", "1/2/3"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--shard must be I/N with I from 0 to N - 1"):
        parse_shard(text)


def test_a_run_that_another_node_kept_to_itself_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        """A pool whose workers write where nobody else looks."""

        workers: tuple[()] = ()

        def compute(self, *_: object) -> list[tuple[int, object]]:
            return [(0, None)]

        def close(self) -> None: ...

    monkeypatch.setattr(jobs.Placement, "open", lambda self, most: Elsewhere())
    with pytest.raises(OSError, match="all nodes must share"):
        list(jobs.run_jobs([jobs.Job("run", list)], jobs.Placement("ray"), Console(file=io.StringIO()), tmp_path))
