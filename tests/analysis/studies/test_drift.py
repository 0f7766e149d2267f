"""Distances, angles and proximal losses against plain loops over the models of a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.studies import drift
from analysis.subjects import Own, Run
from tests.analysis.helpers import ask, check_interruption, check_reading, outputs
from training.settings import build


@pytest.fixture(scope="module")
def every_round(make_run: Callable[..., Run]) -> Run:
    """FedAvg with a checkpoint of every round, so that what was sent is on record."""
    return make_run(checkpoints={"every": 1, "keep_locals": "all"}, rounds={"count": 2, "participants": 3})


def test_distances_against_plain_loops(every_round: Run, tmp_path: Path) -> None:
    run = every_round
    found = ask("drift", [run], tmp_path)
    assert found["round"].values.tolist() == [0, 1, 2]
    assert found["layer"].values.tolist() == [name for name, _ in run.model.named_parameters()]
    for round in (1, 2):
        w, start, models = run.point(round), run.point(round - 1), run.local_points(round)
        shares = run.shares(sorted(models))
        mean = sum(shares[k] * (models[k] - start) for k in shares)
        here = found.sel(round=round)
        assert here["client"][here["distance"].notnull()].values.tolist() == sorted(models)
        for k in models:
            D, client = models[k] - start, here.sel(client=k)
            assert float(client["distance"]) == pytest.approx(float((models[k] - w).norm()))
            assert float(client["update_norm"]) == pytest.approx(float(D.norm()))
            assert float(client["update_cosine"]) == pytest.approx(float(D @ mean / D.norm() / mean.norm()))
            assert float(client["model_norm"]) == pytest.approx(float(models[k].norm()))
            by_layer = client["layer_distance"]
            assert float((by_layer**2).sum()) == pytest.approx(float(client["distance"]) ** 2)
            first = run.model.get_parameter(str(by_layer["layer"][0].item())).numel()
            assert float(by_layer[0]) == pytest.approx(float((models[k] - w)[:first].norm()))
        pairs = list(itertools.combinations(sorted(models), 2))
        assert list(zip(here["first"].values.tolist(), here["second"].values.tolist(), strict=True)) == pairs
        apart = [float((models[a] - models[b]).norm()) for a, b in pairs]
        assert here["pair_distance"].values.tolist() == pytest.approx(apart)
        assert float(here["mean_pair_distance"]) == pytest.approx(sum(apart) / 3)
        assert float(here["mean_distance"]) == pytest.approx(float(here["distance"].mean()))
        spread = float(here["distance"].std(ddof=1)) / math.sqrt(3)
        assert float(here["mean_distance_error"]) == pytest.approx(spread)
        assert float(here["norm"]) == pytest.approx(float(w.norm()))
        # FedAvg's step is the mean update, and its pieces lie around it
        assert float(here["moved_global"]) == pytest.approx(float(mean.norm()))
    assert np.isnan(found["mean_distance"].sel(round=0))
    pair = found.sel(round=1).isel(pair=0)
    D, E = (run.local_points(1)[int(k)] - run.point(0) for k in (pair["first"], pair["second"]))
    assert float(pair["pair_cosine"]) == pytest.approx(float(D @ E / D.norm() / E.norm()))


def test_proximal_loss_against_plain_divergences(every_round: Run, tmp_path: Path) -> None:
    run = every_round
    found = ask("drift", [run], tmp_path, rounds="2", tau=2.0)
    assert found["client"].values.tolist() == sorted(run.local_points(2))
    for k, model in run.local_points(2).items():
        start, inputs = run.point(1), run.examples("train", k)[0]
        w, client = model.clone().requires_grad_(), found.sel(round=2, client=k)
        p = torch.softmax(outputs(run, start, inputs) / 2, dim=1)
        log_q = torch.log_softmax(outputs(run, w, inputs) / 2, dim=1)
        loss = torch.nn.functional.kl_div(log_q, p, reduction="batchmean")
        slope, away = torch.autograd.grad(loss, w)[0], w.detach() - start
        assert float(client["proximal_loss"]) == pytest.approx(float(loss.detach()), rel=1e-10)
        assert float(client["proximal_error"]) == 0
        assert float(client["proximal_gradient_norm"]) == pytest.approx(float(slope.norm()))
        assert float(client["endpoint_cosine"]) == pytest.approx(float(-away @ slope / away.norm() / slope.norm()))
        assert float(client["half_square"]) == pytest.approx(float(away @ away) / 2)


def test_a_model_that_never_moved_has_no_angle(every_round: Run, tmp_path: Path, monkeypatch) -> None:
    start = every_round.point(1)
    monkeypatch.setattr(every_round, "local_points", lambda round: {0: start.clone(), 3: start + 0.1})
    clients = ask("drift", [every_round], tmp_path, rounds="2").sel(round=2)
    still = clients.sel(client=0)
    assert float(still["proximal_loss"]) == pytest.approx(0, abs=1e-14)
    assert still["proximal_gradient_norm"] == 0
    assert np.isnan(still["endpoint_cosine"])
    assert np.isnan(still["update_cosine"])
    assert np.isnan(clients["mean_update_cosine"])
    assert float(clients["update_cosine"].sel(client=3)) == pytest.approx(1)


def test_a_part_of_the_data_gives_a_standard_error(every_round: Run, tmp_path: Path) -> None:
    full = ask("drift", [every_round], tmp_path / "full", rounds="2")
    some = ask("drift", [every_round], tmp_path / "some", rounds="2", limit=50)
    assert (some["proximal_error"] > 0).all()
    assert (np.abs(some["proximal_loss"] - full["proximal_loss"]) < 5 * some["proximal_error"]).all()


def test_without_the_sent_point_the_study_is_refused(run: Run, tmp_path: Path, forget_sent) -> None:
    old = forget_sent(run)
    with pytest.raises(ValueError, match=r"round 4 does not keep the point that was sent; rounds that do: none. Train"):
        ask("drift", [old], tmp_path, rounds="4")
    found = ask("drift", [old], tmp_path, rounds="4", reference="global")
    assert found.attrs["reference"] == "global"
    assert found["update_norm"].isnull().all()
    assert found["client"].values.tolist() == sorted(run.local_points(4))
    for k, model in run.local_points(4).items():
        away = model - run.point(4)
        assert float(found["half_square"].sel(round=4, client=k)) == pytest.approx(float(away @ away) / 2)
    quick = ask("drift", [run], tmp_path / "quick", rounds="4", proximal=False)
    assert "proximal_loss" not in quick


def test_an_answer_depends_on_its_own_rounds_only(every_round: Run) -> None:
    assert drift.STUDY.rounds(every_round, drift.Settings(rounds="2")) == [2]


def test_rounds_that_kept_nothing(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(checkpoints={"every": 2, "keep_locals": "last"})
    found = ask("drift", [run], tmp_path)
    assert found["round"].values.tolist() == [0, 2, 4]
    assert found["distance"].count("client").values.tolist() == [0, 0, 3]
    with pytest.raises(ValueError, match="round 2 keeps no local models; rounds that do: 4"):
        ask("drift", [run], tmp_path / "none", rounds="0,2")


def test_settings_and_subjects_that_make_no_sense(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reference must be 'sent' or 'global', got \"send\""):
        build(drift.Settings, {"reference": "send"}, "drift")
    with pytest.raises(ValueError, match="tau must be above 0, got 0"):
        build(drift.Settings, {"tau": 0}, "drift")
    own = Own("mine", tmp_path, run.model, run.point(4), {"train": run.examples("train")}, "x")
    with pytest.raises(ValueError, match="a single model has no clients"):
        ask("drift", [own], tmp_path)


def test_read_again(run: Run, tmp_path: Path) -> None:
    check_reading("drift", run, tmp_path)


def test_interrupted(run: Run, tmp_path: Path) -> None:
    check_interruption("drift", run, tmp_path)


def test_a_single_participant_has_no_pairs(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(rounds={"count": 2, "participants": 1})
    found = ask("drift", [run], tmp_path, proximal=False)
    assert "pair" not in found.sizes
    assert found["mean_pair_distance"].isnull().all()
    assert float(found["mean_distance"].sel(round=2)) == pytest.approx(0, abs=1e-12)
