"""Rows over runs against the files read by hand; groups against NumPy; no torch anywhere."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from analysis import runner, store, summary
from analysis.store import Answer
from analysis.studies import curvature, forgetting, incompatibility, interpolation, local_global, training
from analysis.subjects import Limits, Run
from training.storage import metrics


def test_torch_stays_unloaded():
    code = "import sys, analysis.summary, analysis.store; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.fixture(scope="module")
def analysed(runs, tmp_path_factory):
    """Copies of both runs with some studies in them."""
    copies = []
    for run in runs:
        path = tmp_path_factory.mktemp("copies") / run.path.name
        shutil.copytree(run.path, path, ignore=shutil.ignore_patterns("analysis"))
        copies.append(Run(path, limits=Limits(workers=1)))
    for run in copies:
        folder = run.path / "analysis"
        for study, settings in (
            (curvature.STUDY, curvature.Settings(rounds="last", top=5)),
            (local_global.STUDY, local_global.Settings()),
            (forgetting.STUDY, forgetting.Settings()),
            (training.STUDY, training.Settings()),
            (incompatibility.STUDY, incompatibility.Settings(steps=0, batches=0, limit=30)),
            (interpolation.STUDY, interpolation.Settings(pairs=("client-global",), steps=3, clients=2, limit=40)),
        ):
            runner.carry_out(runner.plan(study, settings, [run], folder))
    return copies


def test_a_row_says_what_a_run_was_and_how_it_ended(analysed):
    rows = summary.collect([run.path for run in analysed], last=3)
    for run, row in zip(analysed, rows, strict=True):
        assert row["run"] == run.path.name
        assert (row["data"], row["model"], row["partition"], row["alpha"], row["seed"]) == (
            "digits",
            "mlp",
            "dirichlet_total",
            0.5,
            0,
        )
        records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        accuracies = [record["accuracy"] for record in records][-3:]
        assert row["final_accuracy"] == pytest.approx(np.mean(accuracies), rel=1e-15)
        assert row["final_accuracy_over_rounds"] == pytest.approx(np.std(accuracies, ddof=1), rel=1e-12)
        assert row["rounds"] == 4
    assert [row["algorithm"] for row in rows] == ["fedavg", "fedsam"]
    assert [row["algorithm.rho"] for row in rows] == [None, 0.1]
    assert not {"data.root", "checkpoints.every", "local.lr"} & set(rows[0])
    assert list(rows[0]) == list(rows[1])


def read_only(run, study):
    """The one answer of a study of a run."""
    (path,) = (run.path / "analysis" / study).glob("*.h5")
    return store.read(path).data


def test_a_row_has_the_numbers_that_papers_name(analysed):
    rows = summary.collect([run.path for run in analysed])
    for run, row in zip(analysed, rows, strict=True):
        values = read_only(run, "curvature")["eigenvalue"].values[-1]
        assert row["lambda_1"] == values[0]
        assert row["lambda_1_over_lambda_5"] == values[0] / values[4]
        found = read_only(run, "local_global")
        for name in ("local", "global"):
            values = found[f"{name}_eigenvalue"].values[0, :, 0]
            assert np.isfinite(values).sum() == 3
            assert row[f"{name}_lambda_1"] == pytest.approx(np.nanmean(values), rel=1e-14)
        assert row["global_model_lambda_1"] == found["global_model_eigenvalue"].values[0, 0]
        found = read_only(run, "incompatibility")
        assert row["incompatibility"] == found["rise_dispersion_corrected"].values[-1]
        assert row["heterogeneity"] == found["heterogeneity"].values[-1]
        lines = read_only(run, "interpolation")
        heights = lines["loss_barrier"].sel(split="test", definition="linear").values[lines["kind"] == "client-global"]
        assert len(heights) == 2
        assert row["test_barrier[client-global]"] == pytest.approx(np.mean(heights), rel=1e-12)
        last = read_only(run, "forgetting")["local_accuracy_all"].sel(round=4).values
        assert row["forgetting.local_accuracy_all"] == pytest.approx(np.nanmean(last), rel=1e-14)
        assert row["training.final_accuracy[server]"] == row["final_accuracy"]


def test_barriers_by_kind_as_the_models_are_stored():
    barrier = np.zeros((3, 2, 1, 3))
    barrier[:, 0, 0, 1], barrier[:, 1, 0, 1] = [1.0, 2.0, 4.0], 100.0
    data = xr.Dataset(
        {"loss_barrier": (("pair", "batchnorm", "split", "definition"), barrier)},
        {
            "kind": ("pair", ["a", "b", "a"]),
            "batchnorm": ["first", "second"],
            "split": ["train"],
            "definition": ["mean", "linear", "max"],
        },
    )
    found = summary.numbers(Answer("interpolation", "default", {}, {}, data))
    assert found == {"train_barrier[a]": 2.5, "train_barrier[b]": 2.0}


def test_folders_and_single_files(analysed, tmp_path):
    run = analysed[0]
    assert [row["run"] for row in summary.collect([run.path.parent])] == [run.path.name]
    (path,) = (run.path / "analysis" / "curvature").glob("*.h5")
    (row,) = summary.collect([path])
    assert row["run"] == run.path.name
    assert "lambda_1" in row
    assert not any(key.startswith("forgetting.") for key in row)
    (row,) = summary.collect([run.path, path])
    assert row["algorithm"] == "fedavg"
    with pytest.raises(ValueError, match="neither a run directory nor a folder of them"):
        summary.collect([tmp_path])


def test_two_questions_of_one_study_stand_side_by_side(tmp_path):
    for question, value in (("default", 1.0), ("top10", 2.0)):
        data = xr.Dataset({"x": ("round", [value])}, {"round": [0]})
        store.write(
            tmp_path / "mine" / "analysis" / "thing" / f"{question}.h5", Answer("thing", question, {}, {}, data)
        )
    (row,) = summary.collect([tmp_path / "mine"])
    assert row == {"run": "mine", "thing.x": 1.0, "thing[top10].x": 2.0}


def test_numbers_of_any_study():
    data = xr.Dataset(
        {
            "loss": ("round", [2.0, 1.5]),
            "sharp": (("kind", "round"), [[1.0, 2.0], [3.0, 4.0]]),
            "many": (("round", "rank"), np.zeros((2, 3))),
            "words": ("round", ["a", "b"]),
            "flag": ("kind", [0, 1]),
            "single": ((), 7.0),
            "height": (("round", "client"), [[100.0, 5.0, 6.0], [1.0, np.nan, 3.0]]),
            "early": (("round", "client"), [[1.0, 2.0, 6.0], [np.nan] * 3]),
            "nothing": (("round", "client"), np.full((2, 3), np.nan)),
        },
        {"round": [0, 5], "kind": ["sam", "asam"], "rank": np.arange(3), "client": [9, 8, 7]},
    )
    found = summary.numbers(Answer("any", "default", {}, {}, data))
    assert math.isnan(found.pop("any.nothing"))
    assert found == {
        "any.loss": 1.5,
        "any.sharp[sam]": 2.0,
        "any.sharp[asam]": 4.0,
        "any.single": 7.0,
        "any.height": 2.0,
        "any.early": 3.0,
    }


def test_settings_in_which_runs_differ():
    one = {"seed": 0, "data.root": "here", "checkpoints.every": 1, "local.lr": 0.1, "partition.alpha": 1.0, "a": [1]}
    two = {"seed": 1, "data.root": "there", "checkpoints.every": 2, "local.lr": 0.2, "partition.alpha": 2.0, "a": [1]}
    assert summary.differences([one, two, {}]) == ["local.lr"]
    assert summary.differing([one, two, {}]) == ["local.lr", "partition.alpha"]
    assert summary.differences([one, one]) == []


def test_groups_over_seeds():
    rows = [
        {"algorithm": "a", "seed": 0, "acc": 0.5, "lam": 1.0, "word": "x"},
        {"algorithm": "a", "seed": 1, "acc": 0.7, "lam": None, "word": "y"},
        {"algorithm": "a", "seed": 1, "acc": 0.6, "lam": math.nan, "word": "y"},
        {"algorithm": "b", "seed": 0, "acc": 0.9, "lam": 3.0, "word": "z"},
    ]
    one, two = summary.group(rows, ["algorithm"])
    assert (one["algorithm"], one["rows"], one["seeds"], one["acc_n"], one["lam_n"]) == ("a", 3, 2, 3, 1)
    assert one["acc"] == pytest.approx(0.6)
    assert one["acc_spread"] == pytest.approx(0.1)
    assert one["lam"] == 1.0
    assert math.isnan(one["lam_spread"])
    assert (two["rows"], two["acc"], two["acc_n"]) == (1, 0.9, 1)
    assert math.isnan(two["acc_spread"])
    assert "word" not in one
    assert "seed" not in one
    with pytest.raises(ValueError, match=r"no row has 'alpha'\. Known: algorithm, seed"):
        summary.group(rows, ["alpha"])
    assert summary.group([], ["anything"]) == []


def test_csv_to_the_last_digit(tmp_path):
    rows = [{"name": 'a, "b"', "x": 0.1 + 0.2, "list": [1, 2]}, {"name": None, "x": math.nan, "later": 3}]
    text = summary.to_csv(rows, tmp_path / "deep" / "table.csv")
    with open(tmp_path / "deep" / "table.csv", newline="") as file:
        back = list(csv.DictReader(file))
    assert list(back[0]) == ["name", "x", "list", "later"]
    assert back[0] == {"name": 'a, "b"', "x": repr(0.1 + 0.2), "list": "[1, 2]", "later": ""}
    assert back[1] == {"name": "", "x": "", "list": "", "later": "3"}
    assert text == (tmp_path / "deep" / "table.csv").read_text()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["table.csv"]


def test_damage_is_named(tmp_path, analysed):
    run = tmp_path / "run"
    (run / "analysis").mkdir(parents=True)
    (run / "config.toml").write_text("seed = = 1")
    with pytest.raises(ValueError, match=r"config.toml: not valid TOML"):
        summary.collect([run])
    (run / "config.toml").write_text("seed = 1\n")
    metrics.append(run, {"round": 1, "accuracy": 0.5})
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"round": 2, "acc')  # killed while it wrote
    assert summary.collect([run])[0]["final_accuracy"] == 0.5
    with open(run / "metrics.jsonl", "a") as file:
        file.write("nonsense\n")
    with pytest.raises(ValueError, match=r"metrics.jsonl: line 2 is not the record of round 2"):
        summary.collect([run])
    os.truncate(run / "metrics.jsonl", (run / "metrics.jsonl").read_bytes().index(b"\n") + 1)
    assert summary.collect([run])[0]["final_accuracy"] == 0.5
    (run / "analysis" / "curvature.h5").write_bytes(b"not HDF5")
    with pytest.raises(store.DamagedError, match=r"curvature\.h5: not readable as results"):
        summary.collect([run])
