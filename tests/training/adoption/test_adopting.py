"""Adopted runs: the models of the files to the bit, complete or not there, and honest about what is missing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

import training
from landscape.layout import Layout
from tests.training.adoption.foreign import ROUNDS, TOML, make_net, make_state, write_run
from training import config
from training.adoption import adopting
from training.console.summaries import describe_run
from training.data import partition
from training.engine import run as engine
from training.storage import checkpoint, metrics, run_directory
from training.verification import check_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("adopted") / "foreign")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return training.adopt(folder, folder.parent / "runs").path


def flatten(*key: int) -> Tensor:
    return Layout.of(make_net(), statistics=True).flatten(make_state(*key))


def digests(run: Path) -> dict[str, str]:
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "partition.png"]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("round", range(ROUNDS + 1))
def test_models_are_those_of_the_files_to_the_bit(run: Path, round: int) -> None:
    found = checkpoint.load(run_directory.checkpoint_path(run, round))
    assert torch.equal(torch.cat([found.models["server"], found.models["statistics"]]), flatten(round))
    assert {client: torch.equal(w, flatten(round, client)) for client, w in found.locals.items()} == (
        {0: True, 1: True} if round else {}
    )
    if round:
        assert torch.equal(torch.cat([found.models["sent"], found.models["sent_statistics"]]), flatten(round - 1))
        assert found.extra["cohort"] == [0, 1]
    assert "mean" not in found.models


def test_the_run_is_sound_and_says_what_is_known(run: Path) -> None:
    assert check_run(run) == []
    assert "local" not in run_directory.read_settings(run)
    recipe = config.load(run / "config.toml")[0]
    assert recipe.digest == run_directory.read_provenance(run)["digest"]
    assert (recipe.rounds.count, recipe.rounds.participants, recipe.checkpoints.every) == (3, 2, 1)
    lines = describe_run(run, training.load_run(run).recipe, partition.load(run / "partition.npz"))
    assert lines["adopted"] == "from Flower 1.40.0"
    assert "[local] is not in adopt.toml" in lines["missing"]
    assert not {"local", "algorithm", "seed"} & lines.keys()
    assert partition.load(run / "partition.npz").indices[1].tolist() == [*range(1, 60, 2)]


def test_accuracies_are_computed_here_if_the_framework_left_none(run: Path) -> None:
    records = metrics.read(run)
    assert [record["round"] for record in records] == [1, 2, 3]
    assert all(0 <= record["accuracy"] <= 1 and record["test_loss"] > 0 for record in records)
    assert run_directory.read_provenance(run)["adopted"]["accuracies"] == "evaluated here"


def test_a_second_time_nothing_is_written(folder: Path, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert training.adopt(folder, run.parent).path == run
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert [path.name for path in run.parent.iterdir()] == [run.name]


STEPS = {  # where the process is killed -> the function, and its call
    "before the recipe": (adopting.opening, "open_run", 1),
    "second record": (adopting.metrics, "append", 2),
    "third checkpoint": (adopting, "save_state", 3),
    "status": (adopting.run_directory, "write_status", 1),
    "name": (adopting.os, "rename", 1),
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_anywhere_there_is_no_run_and_the_next_call_makes_the_same(
    step: str, folder: Path, run: Path, tmp_path: Path
) -> None:
    module, name, count = STEPS[step]
    child = os.fork()
    if not child:  # what a killed process leaves: its lock and half a run
        calls, function = iter(range(1, 10)), getattr(module, name)
        setattr(module, name, lambda *a, **b: os._exit(9) if next(calls) == count else function(*a, **b))
        try:
            adopting.adopt(folder, tmp_path / "runs")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert list(run_directory.runs_in(tmp_path / "runs")) == []
    assert list((tmp_path / "runs").glob(".adopt-*"))
    again = adopting.adopt(folder, tmp_path / "runs")
    assert digests(again) == digests(run)
    assert [path.name for path in again.parent.iterdir()] == [again.name]


def test_other_models_are_another_run(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other")
    (other / "client_0_3.safetensors").write_bytes((other / "client_0_2.safetensors").read_bytes())
    assert training.adopt(other, run.parent).path != run


def test_what_is_missing_is_allowed_and_named(tmp_path: Path) -> None:
    toml = TOML.replace("client_models", "# client_models").replace("sent_models", "# sent_models")
    folder = write_run(tmp_path / "foreign", toml + "[algorithm]\nname = 'fedprox'\n")
    (folder / "global_0.safetensors").unlink()
    said: list[str] = []
    run = adopting.adopt(folder, tmp_path, on_message=said.append)
    assert check_run(run) == []
    assert run_directory.checkpoint_rounds(run) == [1, 2, 3]
    assert [text.split(":")[0] for text in said] == ["missing"] * 4 + ["accuracies"]
    for part, text in zip(("initial model", "models of clients", "rounds.participants", "[local]"), said, strict=False):
        assert part in text
    assert "fedprox" in run.name


def test_rounds_may_be_counted_and_spaced_otherwise(tmp_path: Path) -> None:
    """Rounds 0, 2, 4 of a framework that calls the first one 0 are ours 1, 3, 5; nothing is known of 2 and 4."""
    folder = write_run(tmp_path / "foreign", TOML.replace("[data]", "round_shift = 1\n\n[data]"))
    for path in folder.glob("*.safetensors"):
        name, _, round = path.stem.rpartition("_")
        path.rename(path.with_name(f"{name}_{2 * int(round):03d}.new"))
    for path in folder.glob("*.new"):
        path.rename(path.with_suffix(".safetensors"))
    said: list[str] = []
    run = adopting.adopt(folder, tmp_path, on_message=said.append)
    assert run_directory.checkpoint_rounds(run) == [1, 3, 5, 7]
    assert [("accuracy" in record) for record in metrics.read(run)] == [True, False] * 3 + [True]
    assert check_run(run) == []
    assert any("sent in round 3, 5, 7" in text for text in said)  # there is no model of the round before
    (run / "checkpoints" / "round_000003").rename(run / "lost")
    assert any("round_000003: missing" in text for text in check_run(run))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_metrics_of_the_framework_are_kept(tmp_path: Path, kind: str) -> None:
    columns = 'columns = {accuracy = "acc"}'
    toml = TOML.replace("[data]", f'metrics = "m.{kind}"\n{columns}\n\n[data]')
    folder = write_run(tmp_path / "foreign", toml)
    rows = {
        "csv": "round,acc,loss,phase\n0,0.1,,x\n1,0.5,2.5,x\n3,0.75,,x\n",
        "jsonl": '{"round": 1, "acc": 0.5, "loss": 2.5, "phase": "x"}\n\n{"round": 3, "acc": 0.75, "loss": NaN}\n',
    }
    (folder / f"m.{kind}").write_text(rows[kind])
    run = adopting.adopt(folder, tmp_path)
    found = [(record.get("accuracy"), record.get("loss")) for record in metrics.read(run)]
    assert found == [(0.5, 2.5), (None, None), (0.75, None)]
    assert run_directory.read_provenance(run)["adopted"]["accuracies"] == f"from m.{kind}"
    assert training.load_run(run).describe()["scores"][0]["value"] == 0.75


def test_an_adopted_run_is_not_trained(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"adopted run, which cannot be trained here"):
        engine.train(config.load(run / "config.toml")[0], tmp_path)


def test_finetuning_needs_a_rate_that_is_known(run: Path) -> None:
    with pytest.raises(ValueError, match=r"finetune: this run was adopted without \[local\].*--set lr=0.01"):
        training.evaluate_personal(run, "finetune")
    assert len(training.evaluate_personal(run, "finetune", lr=0.1, epochs=1)) == 2
