"""Rows over runs against the files read by hand; groups against NumPy; no torch anywhere."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from analysis import runner, store
from analysis.store import Answer
from analysis.studies import curvature, forgetting, incompatibility, interpolation, local_global, training
from analysis.subjects import Limits, Run
from reports.inputs import summary
from training.storage import metrics


def test_torch_stays_unloaded():
    code = "import sys, reports.inputs.summary, analysis.store; print('torch' in sys.modules)"
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


def test_how_well_runs_ended(analysed):
    for run in analysed:
        records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        accuracies = [record["accuracy"] for record in records][-3:]
        row = summary.finals(records, 3)
        assert row["final_accuracy"] == pytest.approx(np.mean(accuracies), rel=1e-15)
        assert row["final_accuracy_over_rounds"] == pytest.approx(np.std(accuracies, ddof=1), rel=1e-12)
        assert row["rounds"] == 4


def read_only(run, study):
    """The one answer of a study of a run."""
    (path,) = (run.path / "analysis" / study).glob("*.h5")
    return store.read(path).data


def test_numbers_that_papers_name(analysed):
    for run in analysed:
        row = {}
        for path in store.find_answers(run.path / "analysis"):
            answer = store.read(path)
            row |= summary.numbers(dataclasses.replace(answer, question="default"))
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
        records = metrics.read(run.path)
        assert row["training.final_accuracy[server]"] == summary.finals(records, 10)["final_accuracy"]


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


def test_two_questions_of_one_study_stand_side_by_side():
    data = xr.Dataset({"x": ("round", [1.0])}, {"round": [0]})
    assert summary.numbers(Answer("thing", "default", {}, {}, data)) == {"thing.x": 1.0}
    assert summary.numbers(Answer("thing", "top10", {}, {}, data)) == {"thing[top10].x": 1.0}


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
    assert summary.differing([one, two, {}]) == ["local.lr", "partition.alpha"]
    assert summary.differing([one, one]) == []


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
