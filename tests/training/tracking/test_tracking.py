"""Trackers: what they hold equals metrics.jsonl, no round twice, no bit of a run changed, and no failure stops one."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import reports
import training
from landscape import cli
from reports.catalog import FIGURES
from training.storage import metrics
from training.tracking import following
from training.tracking.tracker import flatten_record

sys.path.append(str(Path(__file__).parent))  # as users' modules are found: by their names
import own_trackers
import stores

OWN = "own_trackers:Own"
RECIPE = {
    "partition": {"clients": 3},
    "rounds": {"count": 4, "participants": 2},
    "local": {"steps": 1},
    "checkpoints": {"every": 2},
    "record": ["update_norm"],
}


@pytest.fixture(autouse=True)
def _own_tracker(monkeypatch):
    monkeypatch.setattr(following, "PAUSE", 0.0)
    monkeypatch.setattr(own_trackers, "down", False)
    monkeypatch.setattr(own_trackers, "interrupted_at", 0)
    own_trackers.seen.clear()
    own_trackers.closed.clear()


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A run with all three trackers: interrupted in its third round, resumed, then drawn."""
    folder = tmp_path_factory.mktemp("tracked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("MLFLOW_TRACKING_URI", (folder / "store").as_uri())
        patch.setattr(following, "PAUSE", 0.0)
        patch.setattr(own_trackers, "interrupted_at", 3)
        everyone = ["tensorboard", "wandb", "mlflow"]
        with pytest.raises(KeyboardInterrupt):
            training.train(RECIPE, "runs", track=[*everyone, OWN], backend="serial")
        (path,) = Path("runs").iterdir()
        done = len(metrics.read(path))
        run = training.train(RECIPE, "runs", track=everyone, backend="serial")
        for some in (everyone, "tensorboard"):
            reports.report(
                run, track=some, figures=[FIGURES["accuracy"]], console=Console(quiet=True), formats=("png",)
            )
        yield SimpleNamespace(run=training.load_run(folder / "runs" / run.name), done=done, store=folder / "store")


@pytest.fixture(scope="module")
def untracked(tmp_path_factory):
    return training.train(RECIPE, tmp_path_factory.mktemp("untracked"), backend="serial")


def expect(run) -> dict[str, list[tuple[int, float]]]:
    """The curves that a tracker must hold."""
    found: dict[str, list[tuple[int, float]]] = {}
    for record in metrics.read(run.path):
        for name, value in flatten_record(record).items():
            found.setdefault(name, []).append((record["round"], value))
    assert {"accuracy", "train_loss", "recorded/update_norm"} <= set(found)
    return found


def without_seconds(curves):
    """Rounds that were trained twice took another time when they were sent."""
    return {name: curve for name, curve in curves.items() if name != "seconds"}


def test_the_run_of_the_trackers_was_interrupted_between_checkpoints(tracked):
    assert tracked.done == 3
    assert tracked.run.checkpoints == [0, 2, 4]


def test_tensorboard_holds_every_round_once_and_the_last_report(tracked):
    folder = tracked.run.path / "tensorboard"
    rounded = {
        name: [(round, float(np.float32(value))) for round, value in curve]
        for name, curve in without_seconds(expect(tracked.run)).items()
    }
    assert without_seconds(stores.read_scalars(folder)) == rounded
    assert "clients = 3" in stores.read_texts(folder)["recipe"]
    assert "FedAvg" in stores.read_texts(folder)["tables/accuracy"]
    ((name, image),) = stores.read_images(folder).items()
    assert name.startswith("figures/digits")
    assert name.endswith("/accuracy")
    assert image.encoded_image_string[:4] == b"\x89PNG"
    assert len(list(folder.glob("*.report"))) == 1


def test_wandb_holds_every_round_once_under_one_id(tracked):
    rows, settings, ids = stores.read_wandb(tracked.run.path / "wandb")
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if not name.startswith(("_", "figures/", "tables/")) and name != "round":
                found.setdefault(name, []).append((row["round"], value))
    assert without_seconds(found) == without_seconds(expect(tracked.run))
    steps = [row["_step"] for row in rows]
    assert steps == sorted(set(steps))
    assert len(ids) == 1
    assert settings["partition"]["clients"] == 3
    assert {"figures/digits-IID/accuracy/path", "tables/accuracy/path"} <= {name for row in rows for name in row}
    tables = list((tracked.run.path / "wandb").rglob("*.table.json"))
    assert "FedAvg" in str(json.loads(tables[0].read_text())["data"])


def test_mlflow_holds_every_round_once_in_one_run(tracked):
    from mlflow.tracking import MlflowClient

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        client = MlflowClient(tracked.store.as_uri(), tracked.store.as_uri())
        (experiment,) = [one for one in client.search_experiments() if one.name == "fl-landscape"]
        (found,) = client.search_runs([experiment.experiment_id])
        curves = {
            name: [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, name)]
            for name in found.data.metrics
        }
        assert curves.pop("round") == [(round, round) for round in (1, 2, 3, 4)]
        assert without_seconds(curves) == without_seconds(expect(tracked.run))
        assert found.data.params["partition.clients"] == "3"
        assert found.info.run_name == tracked.run.name
        assert found.info.status == "FINISHED"
        (figures,) = client.list_artifacts(found.info.run_id, "figures")
        names = [one.path for one in client.list_artifacts(found.info.run_id, figures.path)]
        names += [one.path for one in client.list_artifacts(found.info.run_id, "tables")]
    assert {Path(name).name for name in names} == {"accuracy.png", "accuracy.csv", "accuracy.md", "accuracy.tex"}


def test_tracking_changes_no_bit_of_a_run(tracked, untracked):
    assert untracked.name == tracked.run.name  # which has the recipe's digest in it
    files = [path.relative_to(untracked.path) for path in (untracked.path / "checkpoints").rglob("*.safetensors")]
    assert len(files) == 4
    for name in [*files, "config.toml", "partition.npz"]:
        assert (untracked.path / name).read_bytes() == (tracked.run.path / name).read_bytes(), name
    drop = {"seconds"}
    mine, theirs = (
        [{key: value for key, value in one.items() if key not in drop} for one in metrics.read(run.path)]
        for run in (untracked, tracked.run)
    )
    assert mine == theirs


def test_a_finished_run_is_sent_to_a_tracker_that_does_not_know_it(untracked):
    own_trackers.seen[:] = [1]
    training.train(RECIPE, untracked.path.parent, track=OWN, backend="serial")
    assert own_trackers.seen == [1, 2, 3, 4]
    assert own_trackers.closed == ["finished"]


def test_a_tracker_that_fails_costs_one_line_and_gets_the_rounds_from_the_next_command(tmp_path, monkeypatch):
    monkeypatch.setattr(own_trackers, "down", True)
    console = Console(file=io.StringIO(), width=300)
    (run,) = training.train_sweep(RECIPE, tmp_path, track=OWN, backend="serial", console=console)
    lines = [line for line in console.file.getvalue().splitlines() if "warning" in line]
    assert lines == [
        f"warning: {OWN} failed, and gets no more of this run until the next command: no route to the server"
    ]
    assert run.status["state"] == "finished"
    monkeypatch.setattr(own_trackers, "down", False)
    training.train_sweep(RECIPE, tmp_path, track=OWN, backend="serial", console=console)
    assert own_trackers.seen == [1, 2, 3, 4]


def test_a_server_that_does_not_answer_costs_one_line(untracked, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    console = Console(file=io.StringIO(), width=300)
    training.train_sweep(RECIPE, untracked.path.parent, track="mlflow", backend="serial", console=console)
    lines = [line for line in console.file.getvalue().splitlines() if "warning" in line]
    assert len(lines) == 1
    assert "mlflow failed" in lines[0]


def test_runs_side_by_side_are_tracked_in_their_workers(tmp_path):
    recipe = {**RECIPE, "rounds": {"count": 1, "participants": 2}, "sweep": {"seed": [0, 1]}}
    console = Console(file=io.StringIO(), width=300)
    runs = training.train_sweep(recipe, tmp_path, track="tensorboard", backend="processes", workers=1, console=console)
    assert len(runs) == 2
    for run in runs:
        assert [step for step, _ in stores.read_scalars(run.path / "tensorboard")["accuracy"]] == [1]
        assert f"{run.name}: tensorboard: tensorboard --logdir" in console.file.getvalue()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wandb", "the package wandb is not installed; write: pip install 'fl-landscape[tracking]'"),
        ("tensorbord", "tensorboard"),
    ],
)
def test_a_tracker_that_is_not_there_is_a_mistake_of_one_line(name, expected, tmp_path, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "wandb" else find(name, *more))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["landscape", "train", "digits_fedavg", "--track", name])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert len(printed.err.splitlines()) == 1
    assert expected in printed.err
    assert not (tmp_path / "runs").exists()


def test_figures_for_trackers_must_be_drawn_as_png(untracked):
    with pytest.raises(ValueError, match="as png"):
        reports.report(untracked, track=OWN, formats=("svg",))
