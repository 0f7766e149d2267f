"""Metrics over rounds: every number against metrics.jsonl read by hand."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import xarray

from analysis import runner
from analysis.studies import training
from analysis.subjects import Limits, Run
from training.engine import recording
from training.storage import metrics


def stored(run, tmp_path, **settings):
    return runner.carry_out(runner.plan(training.STUDY, training.Settings(**settings), [run], tmp_path))


def opened(path, group):
    with xarray.open_dataset(path, group=group, engine="h5netcdf") as found:
        return found.load()


def lines(run):
    return metrics.read(run.path)


def test_every_metric_of_every_round_is_there(run, tmp_path):
    found = opened(stored(run, tmp_path), "rounds")
    records = lines(run)
    assert dict(found.sizes) == {"round": 4}
    assert list(found["round"].values) == [1, 2, 3, 4]
    for name in set(records[0]) - {"round"}:
        np.testing.assert_array_equal(found[name].values, [record[name] for record in records], err_msg=name)
    assert found["bytes_up_so_far"].values.tolist() == np.cumsum([one["bytes_up"] for one in records]).tolist()
    assert found["bytes_up"].attrs["units"] == "bytes"
    assert found["mean_accuracy"].attrs["long_name"] == "test accuracy of the participants' mean, a fraction"


def test_what_was_recorded_along_the_local_steps(make_run, tmp_path):
    run = make_run(record=["proximal_cosine", "gradient_norm"], rounds={"count": 2, "participants": 3})
    path = stored(run, tmp_path)
    found, records = opened(path, "recorded"), [one["recorded"] for one in lines(run)]
    assert "recorded" not in opened(path, "rounds")
    assert found["round"].values.tolist() == [1, 2]
    for name in ("proximal_cosine", "gradient_norm"):
        np.testing.assert_array_equal(found[name].values, [one[name]["mean"] for one in records])
        for row, one in zip(found[f"{name}_by_step"].values, records, strict=True):
            steps = [np.nan if value is None else value for value in one[name]["by_step"]]
            np.testing.assert_array_equal(row[: len(steps)], steps)
            assert np.isnan(row[len(steps) :]).all()
    assert np.isnan(found["proximal_cosine_by_step"].values[:, 0]).all()  # its gradient is zero where training begins
    assert "FedSoL Figure 9b" in found["proximal_cosine"].attrs["long_name"]
    assert found["proximal_cosine_by_step"].dims == ("round", "step")


def test_every_quantity_that_can_be_recorded_is_explained():
    assert set(training.QUANTITIES) == {*recording.QUANTITIES, *recording.OF_ROUNDS}


def test_rounds_and_bytes_to_targets(run, tmp_path):
    records = lines(run)
    between = (records[0]["accuracy"] + max(one["accuracy"] for one in records)) / 2
    found = opened(stored(run, tmp_path, targets=(records[0]["accuracy"], between, 1.0), last=3), "models")
    first = next(place for place, one in enumerate(records) if one["accuracy"] >= between)
    assert list(found["model"].values) == ["server", "mean"]
    server = found.sel(model="server")
    assert server["rounds_to_target"].values[:2].tolist() == [1, first + 1]
    assert np.isnan(server["rounds_to_target"].values[2])
    assert np.isnan(server["bytes_to_target"].values[2])
    traffic = sum(one["bytes_up"] + one["bytes_down"] for one in records[: first + 1])
    assert server["bytes_to_target"].values[1] == traffic
    last = [one["accuracy"] for one in records[-3:]]
    assert float(server["final_accuracy"]) == pytest.approx(np.mean(last), rel=1e-15)
    assert float(server["final_accuracy_spread"]) == pytest.approx(np.std(last, ddof=1), rel=1e-12)
    assert int(server["final_count"]) == 3
    assert float(server["best_accuracy"]) == max(one["accuracy"] for one in records)


def test_rounds_that_were_not_evaluated_count_for_nothing():
    accuracy = np.array([np.nan, 0.5, np.nan, 0.25, np.nan, 0.75])
    assert training.reached(accuracy, (0.25, 0.6, 0.8)) == [1, 5, None]
    mean, spread, count = training.last_mean(accuracy, 2)
    assert (mean, count) == (0.5, 2)
    assert spread == pytest.approx(np.sqrt(0.125))
    assert np.isnan(training.last_mean(accuracy, 1)[1])
    assert np.isnan(training.last_mean(np.full(3, np.nan), 2)[0])


def test_evaluated_seldom_and_with_swa(make_run, tmp_path):
    run = make_run(evaluation={"every": 3, "last": 2}, swa={"start": 0.25, "cycle": 1})
    path = stored(run, tmp_path, targets=())
    rounds, models = opened(path, "rounds"), opened(path, "models")
    assert np.isnan(rounds["accuracy"].values).tolist() == [True, True, False, False]
    assert list(models["model"].values) == ["server", "mean", "swa"]
    assert models["final_count"].values.tolist() == [2, 2, 2]
    swa = [one["swa_accuracy"] for one in lines(run) if "swa_accuracy" in one]
    assert float(models["final_accuracy"].sel(model="swa")) == pytest.approx(np.mean(swa), rel=1e-15)


def test_records_after_the_newest_checkpoint_wait(run, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(run.path, path)
    shutil.rmtree(path / "checkpoints" / "round_000004")
    assert opened(stored(Run(path, limits=Limits(workers=1)), tmp_path / "out"), "rounds").sizes["round"] == 2
    for round in (2,):
        shutil.rmtree(path / "checkpoints" / f"round_00000{round}")
    with pytest.raises(ValueError, match="no round is finished yet"):
        stored(Run(path), tmp_path / "none")


def test_a_second_look_is_kept(run, tmp_path):
    stored(run, tmp_path)
    assert runner.plan(training.STUDY, training.Settings(), [run], tmp_path).kept
    assert not runner.plan(training.STUDY, training.Settings(last=2), [run], tmp_path).kept


@pytest.mark.parametrize("target", [0, 1.5, 80, float("nan"), True, "0.5"])
def test_targets_are_fractions(target):
    with pytest.raises(ValueError, match="targets must be fractions between 0 and 1"):
        training.Settings(targets=(target,))


def test_last_is_a_count():
    with pytest.raises(ValueError, match="last must be a whole number"):
        training.Settings(last=0)
