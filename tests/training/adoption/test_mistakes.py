"""Mistakes in what is adopted: each is named, nothing is written, nothing in a file is executed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from landscape.cli import main
from tests.training.adoption.foreign import TOML, make_state, write_run
from training.adoption import adopting

Change = Callable[[Path], object]


class Harm:
    """A pickle that would write a file when it is loaded."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("harmed",)


def edit(old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        assert old in TOML
        (folder / "adopt.toml").write_text(TOML.replace(old, new))

    return change


def put(name: str = "global_2.safetensors", **tensors: object) -> Change:
    """Replace tensors of a file; None: take one away."""

    def change(folder: Path) -> None:
        changed = {**make_state(2), **{key.replace("_", ".", 1): one for key, one in tensors.items()}}
        save_file({key: one for key, one in changed.items() if isinstance(one, torch.Tensor)}, folder / name)

    return change


def copy(source: str, target: str) -> Change:
    return lambda folder: shutil.copy(folder / source, folder / target)


def metrics(text: str, extra: str = "") -> Change:
    def change(folder: Path) -> None:
        (folder / "m.csv").write_text(text)
        (folder / "adopt.toml").write_text(TOML.replace("[data]", f'metrics = "m.csv"\n{extra}\n[data]'))

    return change


def pickled(thing: object) -> Change:
    def change(folder: Path) -> None:
        (folder / "adopt.toml").write_text(TOML.replace("global_{round}.safetensors", "g_{round}.pt"))
        for round in range(4):
            torch.save(thing, folder / f"g_{round}.pt")

    return change


ONE = "global_2.safetensors: "
MISTAKES: dict[str, tuple[Change, str]] = {
    "no description": (lambda folder: (folder / "adopt.toml").unlink(), "adopt.toml: no such file; it says where"),
    "no TOML": (lambda folder: (folder / "adopt.toml").write_text("[adopt"), "not valid TOML"),
    "no table": (edit("[adopt]", "[adapt]"), r"needs a table \[adopt\]"),
    "no model": (edit("[model]", "[local]"), r"needs a table \[model\], such as name = "),
    "unknown setting": (edit("sent_models", "sent_model"), "unknown 'sent_model'; did you mean 'sent_models'"),
    "no files": (edit("global_{round}", "globe_{round}"), 'global_models = "globe_.*" matches no file in'),
    "unknown placeholder": (edit("global_{round}", "{kind}_{round}"), r"may contain \{round\}, got \{kind\}"),
    "no client in pattern": (edit("client_{client}", "client_0"), r"client_models must contain \{client\}"),
    "absolute pattern": (edit('"global_', '"/global_'), "must be relative to the folder"),
    "no round in pattern": (edit("global_{round}", "global_3"), r"has no \{round\}: write rounds.count"),
    "another number of rounds": (edit("[data]", "[rounds]\ncount = 9\n[data]"), "rounds.count is 9, but the last .* 3"),
    "a gap": (lambda folder: (folder / "global_2.safetensors").unlink(), "not evenly spaced .0, 1, 3.*after round 1"),
    "a listed round": (edit("[data]", "rounds = [1, 8]\n[data]"), "adopt.rounds must name .*8; there are 0, 1, 2, 3"),
    "two of one round": (copy("global_2.safetensors", "global_02.safetensors"), "round 2 has two global models: "),
    "two of one client": (copy("client_1_2.safetensors", "client_01_2.safetensors"), "client 1 has two models in rou"),
    "client without a number": (copy("client_1_2.safetensors", "client_x_2.safetensors"), "client 'x', expected a num"),
    "client too many": (copy("client_1_2.safetensors", "client_2_2.safetensors"), "client 2, but the partition has"),
    "unknown name": (edit("[data]", 'client_names = ["0", "b"]\n[data]'), "'1', which is not among adopt.client_names"),
    "client without global": (copy("client_1_2.safetensors", "client_1_9.safetensors"), "round 9 has models of client"),
    "missing key": (put(**{"5_bias": None}), f"{ONE}these weights are not of this model:\n  '5.bias' is missing"),
    "unknown key": (put(**{"7_bias": torch.zeros(3)}), "'7.bias' is unknown to the model; did you mean"),
    "shape": (put(**{"5_bias": torch.zeros(4)}), r"'5.bias' has shape \(4,\), the model wants \(3,\)"),
    "rounded": (put(**{"5_bias": torch.zeros(3).double()}), "type float64, the run has float32; write dtype = "),
    "whole numbers": (put(**{"5_bias": torch.zeros(3).long()}), "'5.bias' holds numbers of type int64"),
    "not finite": (put(**{"5_bias": torch.tensor([0, torch.nan, 0])}), "1 non-finite entries"),
    "variance": (put(**{"1_running_var": -torch.ones(2)}), "'1.running_var' has variances below zero"),
    "in a client": (put("client_1_3.safetensors", **{"5_bias": torch.zeros(4)}), "client_1_3.safetensors: these wei"),
    "cut short": (lambda folder: os.truncate(folder / "global_1.safetensors", 99), "not a safetensors file"),
    "a network": (pickled(nn.Linear(2, 2)), r"without executing code \(it asks for torch.nn.*state_dict"),
    "a program": (pickled(Harm()), r"without executing code \(it asks for posix.mkdir"),
    "a vector": (pickled(torch.zeros(53)), "is one vector, and this model has buffers too"),
    "wrong examples": (lambda folder: (folder / "clients.json").write_text("[[0], [99]]"), "does not have"),
    "no split": (lambda folder: (folder / "clients.json").write_text('{"a": 1}'), r"or a list of .*: \[\[0, 1\], \[2"),
    "no constants": (edit("std = [1.0]", ""), "write data.mean and data.std, by which images are normalised"),
    "no metrics": (edit("[data]", 'metrics = "m.csv"\n[data]'), "m.csv: no such file; adopt.metrics names it"),
    "metrics without round": (metrics("accuracy\n0.5\n"), "line 2: needs the number of its round"),
    "metrics twice": (metrics("round,accuracy\n1,0.5\n1,0.5\n"), "line 3: round 1 is there twice"),
    "per cent": (metrics("round,accuracy\n1,50\n"), "fraction from 0 to 1, got 50; divide per cents by 100"),
    "no number": (metrics("round,accuracy\n1,high\n"), "'accuracy' must be a number or empty, got 'high'"),
    "no column": (metrics("round,a\n1,1\n", 'columns = {accuracy = "b"}'), "has no column 'b', .* it has a, round"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_nothing_is_written(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    change, message = MISTAKES[mistake]
    folder = write_run(tmp_path / "foreign")
    change(folder)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        adopting.adopt(folder, tmp_path / "runs")
    assert [path.name for path in tmp_path.iterdir()] == ["foreign"]


def test_frozen_tensors_must_be_those_of_the_model(tmp_path: Path) -> None:
    """A checkpoint does not store them: other values than the model's own would be lost without a word."""
    folder = write_run(tmp_path / "foreign", TOML.replace("foreign:make_net", "test_mistakes:make_half_frozen"))
    frozen = make_half_frozen().state_dict()["5.weight"]
    for path in folder.glob("*.safetensors"):
        save_file({**make_state(1), "5.weight": frozen}, path)
    adopting.adopt(folder, tmp_path / "runs")
    save_file(make_state(3), folder / "global_3.safetensors")
    with pytest.raises(ValueError, match=r"global_3.*'5.weight' is not trained .* differs from the model's own"):
        adopting.adopt(folder, tmp_path / "runs")


def make_half_frozen(classes: int = 3) -> nn.Module:
    from tests.training.adoption.foreign import make_net

    net = make_net(classes)
    nn.init.ones_(net[5].weight)
    net[5].weight.requires_grad_(False)
    return net


def test_a_run_of_ours_is_neither_adopted_nor_a_place_for_runs(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "foreign")
    run = adopting.adopt(folder, tmp_path / "runs")
    with pytest.raises(ValueError, match=r"DIR: .* is already a run of this package"):
        adopting.adopt(run, tmp_path / "runs")
    with pytest.raises(ValueError, match=r"--out: .* is already a run of this package"):
        adopting.adopt(folder, run)
    with pytest.raises(ValueError, match="is not a folder"):
        adopting.adopt(folder / "adopt.toml", tmp_path)


def test_the_command_tells_a_mistake_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["landscape", "adopt", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/adopt.toml: no such file")
