"""Metrics over rounds: every number against metrics.jsonl read by hand."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from analysis.studies import training
from analysis.subjects import Limits, Run
from tests.analysis.helpers import ask, plan
from training import recording
from training.settings import build
from training.storage import metrics


def lines(run):
    return metrics.read(run.path)


def test_every_metric_of_every_round_is_there(run, tmp_path):
    found = ask("training", [run], tmp_path)
    records = lines(run)
    assert found.sizes["round"] == 4
    assert list(found["round"].values) == [1, 2, 3, 4]
    for name in set(records[0]) - {"round"}:
        np.testing.assert_array_equal(found[name].values, [record[name] for record in records], err_msg=name)
    assert found["bytes_up_so_far"].values.tolist() == np.cumsum([one["bytes_up"] for one in records]).tolist()
    assert found["bytes_up"].attrs["units"] == "bytes"
    assert found["mean_accuracy"].attrs["long_name"] == "test accuracy of the participants' mean, a fraction"


def test_what_was_recorded_along_the_local_steps(make_run, tmp_path):
    run = make_run(record=["proximal_cosine", "gradient_norm"], rounds={"count": 2, "participants": 3})
    found, records = ask("training", [run], tmp_path), [one["recorded"] for one in lines(run)]
    assert "recorded" not in found
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
    assert set(recording.DESCRIPTIONS) == {*recording.QUANTITIES, *recording.OF_ROUNDS}


def test_accuracies_of_clients_over_rounds(make_run, tmp_path):
    run = make_run(evaluation={"personal": True, "clients": True, "draw": 30}, rounds={"count": 4, "participants": 2})
    found, records = ask("training", [run], tmp_path), lines(run)
    assert found["client"].values.tolist() == list(range(len(records[0]["client_accuracies"])))
    np.testing.assert_array_equal(found["client_accuracy"].values, [one["client_accuracies"] for one in records])
    for row, one in zip(found["own_accuracy"].values, records, strict=True):
        wanted = [one["own_accuracies"].get(str(client), np.nan) for client in range(len(row))]
        np.testing.assert_array_equal(row, wanted)
    means = [one["personal_accuracy"] for one in records]
    np.testing.assert_array_equal(found["personal_accuracy"].values, means)
    assert float(found["best_personal_accuracy"]) == max(means)
    assert int(found["best_personal_round"]) == 1 + means.index(max(means))
    assert found["own_accuracy"].dims == found["client_accuracy"].dims == ("round", "client")
    assert "own latest models" in found["personal_accuracy"].attrs["long_name"]


def test_clients_that_never_took_part_have_no_column(make_run, tmp_path):
    run = make_run(evaluation={"personal": True, "draw": 30}, rounds={"count": 1, "participants": 2})
    found = ask("training", [run], tmp_path)
    assert found["client"].values.tolist() == [int(client) for client in lines(run)[0]["own_accuracies"]]
    assert "client_accuracy" not in found


def test_rounds_and_bytes_to_targets(run, tmp_path):
    records = lines(run)
    between = (records[0]["accuracy"] + max(one["accuracy"] for one in records)) / 2
    found = ask("training", [run], tmp_path, targets=(records[0]["accuracy"], between, 1.0), last=3)
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
    first = training.find_first(accuracy[None], (0.25, 0.6, 0.8), np.arange(6))
    np.testing.assert_array_equal(first, [[1, 5, np.nan]])
    mean, spread, count = training.summarise_last(accuracy, 2)
    assert (mean, count) == (0.5, 2)
    assert spread == pytest.approx(np.sqrt(0.125))
    assert np.isnan(training.summarise_last(accuracy, 1)[1])
    assert np.isnan(training.summarise_last(np.full(3, np.nan), 2)[0])


def test_evaluated_seldom_and_with_swa(make_run, tmp_path):
    run = make_run(evaluation={"every": 3, "last": 2}, swa={"start": 0.25, "cycle": 1})
    found = ask("training", [run], tmp_path, targets=())
    assert np.isnan(found["accuracy"].values).tolist() == [True, True, False, False]
    assert list(found["model"].values) == ["server", "mean", "swa"]
    assert found["final_count"].values.tolist() == [2, 2, 2]
    swa = [one["swa_accuracy"] for one in lines(run) if "swa_accuracy" in one]
    assert float(found["final_accuracy"].sel(model="swa")) == pytest.approx(np.mean(swa), rel=1e-15)


def test_records_after_the_newest_checkpoint_wait(run, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(run.path, path)
    shutil.rmtree(path / "checkpoints" / "round_000004")
    assert ask("training", [Run(path, limits=Limits(workers=1))], tmp_path / "out").sizes["round"] == 2
    for round in (2,):
        shutil.rmtree(path / "checkpoints" / f"round_00000{round}")
    with pytest.raises(ValueError, match="no round is finished yet"):
        ask("training", [Run(path)], tmp_path / "none")


def test_a_second_look_is_kept(run, tmp_path):
    ask("training", [run], tmp_path)
    assert plan("training", [run], tmp_path).kept
    assert not plan("training", [run], tmp_path, last=2).kept


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (0, "above 0, got 0"),
        (1.5, "at most 1, got 1.5"),
        (80, "at most 1, got 80"),
        (float("nan"), "finite, got nan"),
        (True, "a number, got true"),
        ("0.5", 'a number, got "0.5"'),
    ],
)
def test_targets_are_fractions(target, message):
    with pytest.raises(ValueError, match=f"study training: targets.0 must be {message}"):
        build(training.Settings, {"targets": [target]}, "study training")


def test_last_is_a_count():
    with pytest.raises(ValueError, match="last must be at least 1, got 0"):
        build(training.Settings, {"last": 0}, "study training")
