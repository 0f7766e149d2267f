"""The command from outside: train, list, show and check, what they print, their exit codes, and no traceback."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

from analysis import store
from landscape import cli
from training import config, verification
from training.console import partition_picture, sweep, tables
from training.console.messages import printable
from training.data import datasets, partition
from training.methods import catalog
from training.models import networks
from training.storage import lock, metrics, run_directory

ROOT = Path(__file__).parents[3]
COMMAND = [  # -P: the current folder is ours to add; a background job of a shell has interrupts switched off
    sys.executable,
    "-P",
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from landscape.cli import main; main()",
]
QUICK = ("--backend", "serial", "--set", "local.steps=1", "--set", "rounds.count=4", "--set", "checkpoints.every=2")


def outside(folder, *words):
    """The command as a process of its own."""
    paths = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment = {**{key: value for key, value in os.environ.items() if key != "COLUMNS"}, **paths}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *words], cwd=folder, env=environment, **pipes)


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """The command inside this process, in an empty folder: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("LANDSCAPE_DATA", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["landscape", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return stop.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def run(command, tmp_path):
    """A finished run of four rounds."""
    code, _, _ = command("train", "digits_feddyn", *QUICK)
    assert code == 0
    (path,) = (tmp_path / "runs").iterdir()
    return path.relative_to(tmp_path)


def accuracies(run, key="accuracy"):
    return [json.loads(line)[key] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_without_a_terminal_a_round_is_a_plain_line(tmp_path):
    (tmp_path / "sklearn.py").write_text("raise RuntimeError('taken for the package that holds the digits')")
    (tmp_path / "mynets.py").write_text(
        "import torch\n"
        "def wide(classes, channels, size, width=20):\n"
        "    hidden = torch.nn.Linear(channels * size * size, width)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), hidden, torch.nn.ReLU(), torch.nn.Linear(width, classes))\n"
    )
    (tmp_path / "mine.toml").write_text(
        '[partition]\nname = "dirichlet_by_class"\nalpha = 0.001\nbalance = false\n'
        '[model]\nname = "mynets:wide"\nwidth = 17\n[rounds]\ncount = 12\n[evaluation]\nlast = 3\n'
    )
    process = outside(tmp_path, "train", "mine.toml", "--backend", "serial")
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    *rounds, finished, accuracy, following = out.splitlines()
    wanted = r"round +(\d+)/12  train loss \d+\.\d{4}  accuracy (\d+\.\d\d) %  \d+\.\d\d s"
    found = [re.fullmatch(wanted, line) for line in rounds]
    assert [int(match[1]) for match in found] == list(range(1, 13))
    (path,) = (tmp_path / "runs").iterdir()
    percent = [100 * value for value in accuracies(path)]
    assert [match[2] for match in found] == [f"{value:.2f}" for value in percent]
    assert finished == f"finished after 12 of 12 rounds: runs/{path.name}"
    assert f"{percent[-1]:.2f} % after round 12, {np.mean(percent[-3:]):.2f} % in the mean of the last 3" in accuracy
    assert following == f"next: landscape show runs/{path.name}"
    assert re.fullmatch(r"warning: dirichlet_by_class: no attempt .*\n", err)
    assert "width = 17" in (path / "config.toml").read_text()


def test_ctrl_c_says_how_to_go_on(tmp_path):
    words = ("--backend", "serial", "--set", "rounds.count=100000", "--set", "checkpoints.every=2")
    process = outside(tmp_path, "train", "digits_fedavg", *words)
    try:
        for line in process.stdout:
            if line.startswith("round      5/"):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 130
    (path,) = (tmp_path / "runs").iterdir()
    newest = max(int(found.name.removeprefix("round_")) for found in (path / "checkpoints").iterdir())
    assert out.splitlines()[-1] == f"stopped. Nothing saved is lost: the same command resumes from round {newest}"
    assert err == ""


def test_a_finished_run_is_not_trained_again(command, run):
    before = {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
    code, out, _ = command("train", "digits_feddyn", *QUICK)
    assert code == 0
    assert out.startswith("finished already, not trained again")
    assert "round 1/4" not in out
    assert {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))} == before


def test_a_run_whose_last_checkpoint_is_damaged_is_gone_on_with(command, run):
    last = run / "checkpoints" / "round_000004" / "global.safetensors"
    good = last.read_bytes()
    last.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    code, out, _ = command("train", "digits_feddyn", *QUICK)
    assert code == 0
    assert f"damaged, skipped: {last}" in out
    assert "resuming from round 2\nround 3/4" in out
    assert last.read_bytes() == good


def test_a_status_that_cannot_be_read_is_written_anew(command, run):
    (run / "status.json").write_text("finis")
    code, _, err = command("show", run)
    assert code == 2
    assert "status.json: its content does not match its own hash; landscape check" in err
    code, out, _ = command("train", "digits_feddyn", *QUICK)
    assert code == 0
    assert out.startswith("finished after 4 of 4 rounds")
    assert command("check", run)[:2] == (0, "sound: 3 checkpoints\n")


def test_the_settings_of_a_run_are_a_recipe_that_goes_on_with_it(command, run):
    code, out, _ = command("train", run / "config.toml", "--out", run.parent)
    assert (code, out.splitlines()[0][:16]) == (0, "finished already")


def test_a_diverging_run_does_not_stop_the_sweep(command, tmp_path):
    words = ("train", "digits_fedavg", *QUICK, "--set", "sweep.local.lr=[1e20, 0.05]", "--out", "both")
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    assert "run 1 of 2, local.lr=1e+20: both/digits" in out
    assert "\ndiverged: " in out
    assert "2 runs in both, 1 of them diverged" in out
    states = {json.loads(path.read_text())["state"] for path in tmp_path.glob("both/*/status.json")}
    assert states == {"diverged", "finished"}
    code, again, _ = command(*words)
    assert code == 0
    assert "diverged before, not trained again" in again
    assert again.splitlines()[-8:] == out.splitlines()[-8:]
    (failed,) = (path.parent for path in tmp_path.glob("both/*/status.json") if "diverged" in path.read_text())
    code, shown, _ = command("show", failed)
    assert code == 0
    message = json.loads((failed / "status.json").read_text())["message"]
    assert re.search(rf"status +diverged after 0 of 4 rounds: {re.escape(message)}", shown)
    assert "local.lr" in message


def test_a_mistake_in_one_run_of_a_sweep_names_it(command):
    code, _, err = command("train", "digits_fedavg", "--set", "sweep.partition.clients=[1437, 2000]", *QUICK)
    assert code == 2
    assert re.match(
        r"error: digits_fedavg_alpha0.5_clients2000_steps1_rounds4_checkpoints2_seed0_\w{8}: clients: 2000 clients", err
    )


def test_a_terminal_gets_a_bar_and_about_ten_lines(tmp_path):
    overrides = ["rounds.count=22", "local.steps=1", "evaluation.every=6", "evaluation.last=1"]
    recipes = config.load("digits_fedasam_swa", overrides)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    sweep.train_all(recipes, tmp_path, console=console, backend="serial")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "22/22" in shown
    said = re.findall(r"round +(\d+)/22  train loss \S+  accuracy (\S+)", shown)
    assert [int(number) for number, _ in said] == [3, 6, 9, 12, 15, 18, 21, 22]
    assert [int(number) for number, accuracy in said if accuracy != "-"] == [6, 12, 18, 22]
    assert "accuracy of the SWA average" in shown


def test_what_tells_runs_apart():
    recipes = config.load("digits_heterogeneity", ["sweep.swa=[false, {cycle = 2}]", "partition.alpha=0.5"])
    told = sweep.describe_differences(recipes)
    assert told[:3] == ["algorithm=fedavg, swa=off", "algorithm=fedavg, swa=on", "algorithm=fedsam, swa=off"]
    rates = config.load("digits_fedsam", ["sweep.algorithm.rho=[0.1, 0.2]", "sweep.seed=[0, 7]"])
    assert sweep.describe_differences(rates)[1] == "seed=7, algorithm.rho=0.1"
    assert len(set(told)) == len(recipes) == 8


def test_equal_runs_of_a_sweep_are_trained_once(command, tmp_path):
    code, out, _ = command("train", "digits_fedavg", *QUICK, "--set", "sweep.local.lr=[0.05, 0.05]")
    assert code == 0
    assert out.count("round 1/4") == len(list((tmp_path / "runs").iterdir())) == 1
    assert "run 1 of" not in out
    assert "already" not in out


def test_where_the_data_lie_is_no_part_of_the_run(command, run, tmp_path):
    code, out, _ = command("train", "digits_feddyn", *QUICK, "--data-root", "elsewhere", "--download")
    assert (code, out[:16]) == (0, "finished already")
    code, _, _ = command("train", "digits_fedavg", *QUICK, "--data-root", "elsewhere", "--out", "new")
    (path,) = (tmp_path / "new").iterdir()
    assert config.load(path / "config.toml")[0].data.root == str(tmp_path / "elsewhere")


MISTAKES = {
    ("train", "bad.toml"): "bad.toml: not valid TOML",
    ("train", "wrong.toml"): "did you mean 'lr'",
    ("train", "latin.toml"): "latin.toml: cannot be read",
    ("train", "none.toml"): "none.toml: cannot be read",
    ("train", "digits_fedsm"): "did you mean 'digits_fedsam'",
    ("train", "digits_fedavg", "--set", "rounds.count"): "--set expects key=value",
    ("train", "digits_fedavg", "--set", "rounds.participants=11"): "must not exceed partition.clients (10)",
    ("train", "digits_fedavg", "--set", "partition.alpha=-1"): "alpha must be at least 0",
    ("train", "digits_fedavg", "--set", "partition.clients=2000"): "2000 clients cannot each hold one of 1437",
    ("train", "digits_fedavg", "--set", "algorithm.name=fedsm"): "did you mean 'fedsam'",
    ("train", "digits_fedavg", "--set", "algorithm.rho=0.1"): "unknown 'rho'",
    ("train", "digits_fedavg", "--set", "model.name=lenet65"): "did you mean 'lenet64'",
    ("train", "digits_fedavg", "--set", "model.name=nowhere:net"): "module 'nowhere' cannot be imported",
    ("train", "digits_fedavg", "--set", "data.name=digts"): "did you mean 'digits'",
    ("train", "digits_fedavg", "--backend", "gpu"): "Known: auto, processes, ray, serial, vmap",
    ("train", "digits_fedavg", "--workers", "0"): "workers must be a whole number, at least 1",
    ("train", "fedsol_cifar10", "--data-root", "empty"): "empty/cifar-10-batches-py. Add --download",
    ("list", "algoritms"): "did you mean 'algorithms'",
    ("show", "nowhere"): "nowhere does not exist; expected a run directory",
    ("show", "bad.toml"): "bad.toml is a file; expected a run directory",
    ("show", "bad*"): "bad*: no run directory matches this pattern",
    ("show", "."): ". is not a run, it has no config.toml; expected a run directory",
    ("check", "."): ". is not a run, it has no config.toml; expected a run directory",
}


@pytest.mark.parametrize(("words", "message"), MISTAKES.items(), ids=[" ".join(words) for words in MISTAKES])
def test_a_mistake_is_said_clearly(command, tmp_path, words, message):
    (tmp_path / "bad.toml").write_text("[local\nlr = 1")
    (tmp_path / "wrong.toml").write_text("[local]\nlrr = 1")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")
    code, _, err = command(*words)
    assert code == 2
    assert err.startswith("error: ")
    assert message in err
    assert not (tmp_path / "runs").exists()


def test_several_mistakes_are_said_at_once(command, tmp_path):
    (tmp_path / "wrong.toml").write_text('[local]\nlr = "fast"\n[rounds]\ncount = 0\n[swaa]\ncycle = 2\n')
    code, _, err = command("train", "wrong.toml")
    assert code == 2
    assert [word in err for word in ("local.lr", "rounds.count", "did you mean 'swa'")] == [True] * 3
    assert len(err.splitlines()) == 3


def test_a_mistake_from_outside_leaves_no_traceback(tmp_path):
    process = outside(tmp_path, "train", "digits_fedavg", "--set", "partition.alpha=-1")
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (2, "")
    assert re.fullmatch(r"error: .*: partition 'dirichlet_total': alpha must be at least 0, got -1\n", err)


def test_a_directory_of_another_recipe_is_refused(command, run):
    settings = run / "config.toml"
    settings.write_text(settings.read_text().replace("lr = 0.05", "lr = 0.06"))
    code, _, err = command("train", "digits_feddyn", *QUICK)
    assert code == 2
    assert "holds a run of another recipe" in err


def test_a_place_that_cannot_be_written_is_a_failure(command, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, _, err = command("train", "digits_fedavg", *QUICK, "--out", "file")
    assert code == 1
    assert err.startswith("error: ")


def test_show_tells_settings_status_and_results(command, run):
    code, out, _ = command("show", run)
    assert code == 0
    assert re.search(r"status +finished, 4 of 4 rounds", out)
    assert re.search(r"algorithm +feddyn \(alpha=0.1\)", out)
    assert re.search(r"rounds +4, exactly 5 clients each, mean weighted by size", out)
    assert re.search(r"checkpoints +after rounds 0, 2, 4; local models after 2, 4\b", out)
    for name, key in (("server's model", "accuracy"), ("mean of participants", "mean_accuracy")):
        last, mean = 100 * accuracies(run, key)[-1], 100 * np.mean(accuracies(run, key))
        assert re.search(rf"{name} +4 +\d\.\d{{4}} +{last:.2f} % +{mean:.2f} % \(last 4\)", out)


def test_show_leaves_the_mean_of_participants_out_where_it_is_the_model(command, tmp_path):
    command("train", "digits_fedavg", *QUICK)
    code, out, _ = command("show", *(tmp_path / "runs").iterdir())
    assert code == 0
    assert "server's model" in out
    assert "mean of participants" not in out


def test_show_counts_the_classes_of_every_client(command, run):
    _, out, _ = command("show", run)
    stored = np.load(run / "partition.npz")
    labels = datasets.digits().train_targets.numpy()
    ends = np.cumsum(stored["sizes"])
    for client, (stop, size) in enumerate(zip(ends, stored["sizes"], strict=True)):
        counts = np.bincount(labels[stored["indices"][stop - size : stop]], minlength=10)
        row = [str(client), str(size), *(str(count) if count else "·" for count in counts)]
        assert row in [line.split() for line in out.splitlines()]
    assert (run / "partition.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_show_sums_up_many_clients(command, tmp_path):
    words = ("--set", "partition.clients=100", "--set", "partition.alpha=0.0")
    command("train", "digits_fedavg", *QUICK, *words)
    (path,) = (tmp_path / "runs").iterdir()
    code, out, _ = command("show", path)
    assert code == 0
    split = partition.load(path / "partition.npz")
    assert re.search(r"examples +14 +14 +14.37 +15", out)
    assert re.search(rf"classes +1 +1 +{split.classes_per_client.mean():.4g} +2", out)
    one, two = ((split.classes_per_client == number).sum() for number in (1, 2))
    assert f"clients by classes: {one} with 1, {two} with 2\n" in out


def test_show_says_how_to_go_on_with_a_run_that_was_stopped(command, run):
    run_directory.write_status(run, "running", 2)
    (run / "metrics.jsonl").write_text("".join((run / "metrics.jsonl").read_text().splitlines(keepends=True)[:3]))
    _, out, _ = command("show", run)
    told = f"running, or stopped: 3 of 4 rounds. To resume: landscape train {run / 'config.toml'} --out {run.parent}"
    assert told in out


def test_show_looks_at_a_run_that_cannot_be_written_to(command, run, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    code, out, _ = command("show", run)
    assert code == 0
    assert out.endswith("partition.png cannot be written: Permission denied\n")
    assert not list(run.glob(".*"))


def test_show_and_check_take_folders_patterns_and_several_runs(command, run):
    command("train", "digits_fedavg", *QUICK, "--out", "runs/more")
    (other,) = Path("runs/more").iterdir()
    (run.parent / "analysis").mkdir()
    for words in ([run.parent], ["runs/**/digits_fed*"], [run, other, run.parent / "analysis"], [run.parent, run]):
        code, out, _ = command("show", *words)
        assert code == 0
        shown = [line.split()[:5] for line in out.splitlines() if line.startswith("runs")]
        assert sorted(shown) == sorted([[str(one), "finished", "4", "of", "4"] for one in (run, other)])
        code, out, _ = command("check", *words)
        assert code == 0
        assert sorted(out.splitlines()) == sorted(f"{one}: sound: 3 checkpoints" for one in (run, other))
    (other / "status.json").write_text("{}")
    code, out, _ = command("show", run, other)
    assert code == 1
    assert re.search(rf"{re.escape(str(other))} +not readable", out)
    assert f"{other / 'status.json'}: its content does not match its own hash" in out.splitlines()[-1]
    code, out, _ = command("check", run, other)
    assert code == 1
    assert out.splitlines()[0] == f"{run}: sound: 3 checkpoints"
    code, _, err = command("show", "runs/*nothing*")
    assert code == 2
    assert "no run directory matches this pattern. Runs near there:" in err


def test_check_looks_at_results_too(command, run):
    result = run / "analysis" / "curvature" / "default.h5"
    store.write(result, store.Answer("curvature", "default", {}, {}, xr.Dataset()))
    assert command("check", run)[:2] == (0, "sound: 3 checkpoints, 1 results of analyze\n")
    command("personal", run, "--strategy", "global")
    (personal,) = (run / "personal").iterdir()
    for path in (result, personal):
        good = path.read_bytes()
        path.write_bytes(good[:50] + bytes([good[50] ^ 1]) + good[51:])
        code, out, _ = command("check", run)
        assert code == 1
        assert out.startswith(f"{path}: ")
        assert len(out.splitlines()) == 1
        path.write_bytes(good)
    shared = run.parent / "analysis" / "plane" / "default.h5"
    store.write(shared, store.Answer("plane", "default", {}, {}, xr.Dataset()))
    assert command("check", run.parent)[1].splitlines()[-1] == "sound: 1 results of analyze"
    shared.write_bytes(b"x")
    code, out, _ = command("check", run.parent)
    assert (code, out.splitlines()[-1].partition(":")[0]) == (1, str(shared))


def test_a_finished_run_without_metrics_is_said(command, run):
    (run / "metrics.jsonl").unlink()
    code, out, err = command("train", "digits_feddyn", *QUICK)
    assert code == 2
    assert "finished already" not in out
    assert "metrics.jsonl: ends at round 0, but there is a checkpoint of round 4; remove the checkpoints" in err


def test_a_busy_directory_is_one_line(command, run):
    before = (run / "metrics.jsonl").read_bytes()
    shutil.rmtree(run / "checkpoints" / "round_000004")
    for words in (("train", "digits_feddyn", *QUICK), ("personal", run)):
        with lock.hold(run, "train"):
            code, _, err = command(*words)
        assert code == 2
        assert re.fullmatch(rf"error: {run} is being written by train \(pid \d+ on host .*\): wait for it, .*\n", err)
    assert (run / "metrics.jsonl").read_bytes() == before


def test_of_two_that_train_the_same_at_once_one_is_told(tmp_path):
    """The pairs that used to double the metrics: started together, on one directory."""
    words = ("train", "digits_fedavg", *QUICK, "--set", "rounds.count=40")
    pair = [outside(tmp_path, *words) for _ in range(2)]
    answers = [(process.communicate(timeout=100), process.returncode) for process in pair]
    codes = [code for _, code in answers]
    assert sorted(codes) in ([0, 2], [0, 0])  # the second may have come when the first was done
    for (_, err), code in answers:
        assert "Traceback" not in err
        assert (code == 2) == ("is being written by train" in err)
    (path,) = (tmp_path / "runs").iterdir()
    assert [record["round"] for record in metrics.read(path)] == list(range(1, 41))
    assert verification.check_run(path) == []
    assert sorted(one.name for one in path.iterdir() if one.name.startswith((".", "lock"))) == []


def test_odd_names_of_folders(command, tmp_path):
    for name in ("a[/b]", "x[red]y", "caf\udce9"):
        code, out, err = command("train", "digits_fedavg", *QUICK, "--out", name)
        shown = printable(name)
        assert (code, err) == (0, "")
        assert f"next: landscape show {shown}/digits_fedavg" in out
        (path,) = (tmp_path / name).iterdir()
        for words in (("show", path), ("check", path), ("show", tmp_path / name, path), ("personal", path)):
            code, out, err = command(*words)
            assert (code, err) == (0, "")
            assert shown in out or words[0] == "check"
    code, _, err = command("train", "digits_fedavg", *QUICK, "--data-root", "caf\udce9", "--out", "new")
    assert code == 2
    assert "caf\\udce9: not valid UTF-8; rename it" in err


def test_check_finds_what_is_damaged(command, run):
    code, out, _ = command("check", run)
    assert (code, out) == (0, "sound: 3 checkpoints\n")
    first, second = (
        run / "checkpoints" / name for name in ("round_000002/global.safetensors", "round_000004/meta.json")
    )
    data = first.read_bytes()
    first.write_bytes(data[:100] + bytes([data[100] ^ 4]) + data[101:])
    second.unlink()
    code, out, _ = command("check", run)
    assert code == 1
    lines = out.splitlines()
    assert len(lines) == 2
    assert str(first) in lines[0]
    assert str(second) in lines[1]


def test_check_of_a_run_that_was_killed_before_its_first_round(command, run):
    shutil.rmtree(run / "checkpoints")
    (run / "metrics.jsonl").unlink()
    (run / "status.json").unlink()
    code, out, _ = command("check", run)
    assert (code, out) == (1, f"{run}: stopped before its first round; the same landscape train resumes it\n")


def test_personal_takes_a_folder_of_runs(command, run):
    code, out, err = command("personal", run.parent, "--strategy", "global")
    assert (code, err) == (0, "")
    assert run.name in out


def test_check_of_a_run_without_settings(command, run):
    (run / "config.toml").unlink()
    code, out, _ = command("check", run)
    assert code == 1
    assert "config.toml" in out
    code, _, err = command("show", run)
    assert code == 2
    assert "config.toml: cannot be read" in err


TABLES = {
    "algorithms": catalog.ALGORITHMS,
    "datasets": datasets.DATASETS,
    "partitions": partition.PARTITIONS,
    "models": networks.MODELS,
    "recipes": [path.stem for path in config.RECIPES.glob("*.toml")],
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("width", [None, 80])
def test_lists_name_everything(command, monkeypatch, kind, width):
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = command("list", kind)
    assert code == 0
    assert {line.split(" ")[0] for line in out.splitlines()} >= set(TABLES[kind])
    assert "…" not in out
    if width:
        assert max(map(len, out.splitlines())) <= width


def row(out, name):
    (line,) = (line for line in out.splitlines() if line.startswith(f"{name} "))
    return re.split(r" {2,}", line.strip())


def test_lists_say_what_is_behind_a_name(command):
    _, out, _ = command("list", "algorithms")
    assert row(out, "scaffold") == [
        "scaffold",
        "control variate → mean",
        "control",
        "2/2",
        "1",
        "eta_g=1",
        "Karimireddy 2020",
    ]
    assert row(out, "fedavg")[1:5] == ["→ mean", "-", "1/1", "1"]
    assert row(out, "mofedsam")[1:6] == [
        "SAM + client momentum → mean",
        "-",
        "2/1",
        "2",
        "rho=0.1, warmup=0, rho_start=0.001, a=0.1, eta_g=1",
    ]
    _, out, _ = command("list", "models")
    assert row(out, "lenet64")[1:4] == ["3x32x32", "797,962", "-"]
    assert row(out, "fedavg_net")[2] == "2,156,490"
    _, out, _ = command("list", "partitions")
    assert row(out, "iid")[1:] == ["Shuffle the examples and deal them out in equal shares."]
    lines = [re.split(r" {2,}", line.strip()) for line in out.splitlines()]
    first = lines.index(row(out, "dirichlet_by_class"))
    assert [line[0] for line in lines[first + 1 : first + 4]] == ["alpha", "balance=true", "min_size=10"]
    assert lines[first + 3][1:] == ["a whole number, at least 1", "redraw while a client has fewer examples"]
    _, out, _ = command("list", "datasets")
    assert row(out, "cifar10")[1] == "--data-root or --download"
    assert row(out, "digits")[1] == "the package itself"
    assert "examples=10000" in out
    assert "distance of two classes, in units of the noise" in out
    _, out, _ = command("list", "recipes")
    assert row(out, "digits_heterogeneity")[1] == "12"


def test_rounds_are_spelled_short():
    from training.storage.run_directory import list_rounds

    assert list_rounds([0, 5, 7]) == "0, 5, 7"
    assert list_rounds(range(0, 10001, 500)) == "0, 500, 1000, ..., 10000 (21 of them)"


def test_values_are_shown_as_they_are_set():
    values = {"a": 0.5, "b": True, "c": "word", "d": (1, 2.0), "e": 3}
    assert tables.show_settings(values) == "a=0.5, b=true, c=word, d=[1, 2], e=3"
    assert tables.show_settings({}) == "-"


@pytest.mark.parametrize("clients", [1, 10, 100, 250])
def test_the_picture_shows_the_counts(clients):
    labels = np.arange(3000) % 7
    split = partition.partition("dirichlet_total", labels, clients, seed=1, alpha=2.0)
    figure = partition_picture.make_figure(split)
    top, heat = figure.axes[:2]
    shown = min(clients, 200)
    places = [int(i * (clients - 1) / max(shown - 1, 1)) for i in range(shown)]
    counts = np.array([[(labels[split.indices[k]] == c).sum() for k in places] for c in range(7)])
    drawn = heat.images[0].get_array()
    np.testing.assert_array_equal(drawn.filled(0), counts)
    np.testing.assert_array_equal(drawn.mask, counts == 0)
    assert heat.get_ylim() == (-0.5, 6.5)  # class 0 at the bottom
    assert [bar.get_height() for bar in top.patches] == [len(split.indices[k]) for k in places]
    written = {(int(text.get_position()[1]), int(text.get_position()[0])): int(text.get_text()) for text in heat.texts}
    assert written == ({(c, k): counts[c, k] for c, k in np.argwhere(counts)} if clients <= 15 else {})
    assert [int(tick.get_text()) for tick in heat.get_xticklabels()] == [places[int(x)] for x in heat.get_xticks()]
    assert ("200 of them shown" in figure.get_suptitle()) == (clients == 250)
