"""Distances, angles and proximal losses against plain loops over the models of a run."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import xarray
from torch import Tensor

from analysis import runner, store
from analysis.store import Table
from analysis.studies import drift
from analysis.study import Study
from analysis.subjects import Limits, Own, Run, Subject


def answer(study: Study, subjects: Sequence[Subject], out: Path, **settings: Any) -> dict[str, Table]:
    return store.read(runner.carry_out(runner.plan(study, study.settings(**settings), subjects, out))).tables


def outputs(run: Subject, theta: Tensor, inputs: Tensor) -> Tensor:
    """What the network says at theta, with the tensors cut out of it by hand."""
    model = copy.deepcopy(run.model).double().eval()
    tensors, start = {}, 0
    for name, parameter in model.named_parameters():
        tensors[name] = theta[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    return torch.func.functional_call(model, tensors, (inputs,))


def loss_at(run: Subject, theta: Tensor, client: int | None = None) -> Tensor:
    inputs, labels = run.examples("train", client)
    return torch.nn.functional.cross_entropy(outputs(run, theta, inputs), labels)


def gradient_at(run: Subject, theta: Tensor, client: int | None = None) -> Tensor:
    w = theta.clone().requires_grad_()
    return torch.autograd.grad(loss_at(run, w, client), w)[0]


def check_reading(study: Study, run: Run, out: Path, **settings: Any) -> None:
    """Every axis of every array has a name, in xarray too, and every array words and units."""
    path = runner.carry_out(runner.plan(study, study.settings(**settings), [run], out))
    for group, table in store.read(path).tables.items():
        data = xarray.open_dataset(path, group=group, engine="h5netcdf")
        assert {str(name) for name in data.variables} == set(table.variables)
        assert not any(str(dim).startswith("phony") for dim in data.sizes)
        for name, variable in table.variables.items():
            assert data[name].dims == variable.dims
            assert data[name].attrs["units"]
            assert data[name].attrs["long_name"]
        data.close()
    with h5py.File(path) as file:
        arrays = [data for group in file.values() for data in group.values() if not data.is_scale]
        assert all(len(dim) == 1 for data in arrays for dim in data.dims)


def check_interruption(study: Study, run: Run, out: Path, **settings: Any) -> None:
    """Stopped in the middle and asked again, or asked of two workers: the same content."""
    chosen = study.settings(**settings)
    whole = store.read(runner.carry_out(runner.plan(study, chosen, [run], out / "whole"))).tables
    calls = []

    def failing(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return study.measure(*given)

    broken = dataclasses.replace(study, measure=failing)
    with pytest.raises(KeyboardInterrupt):
        runner.carry_out(runner.plan(broken, chosen, [run], out / "broken"))
    again = runner.plan(study, chosen, [run], out / "broken")
    assert again.done == 1
    resumed = store.read(runner.carry_out(again)).tables
    two = Run(run.path, limits=Limits(workers=2))
    beside = store.read(runner.carry_out(runner.plan(study, chosen, [two], out / "two"))).tables
    for group, table in whole.items():
        for name in table.variables:
            np.testing.assert_array_equal(resumed[group][name], table[name])
            np.testing.assert_array_equal(beside[group][name], table[name])


@pytest.fixture(scope="module")
def every_round(make_run: Callable[..., Run]) -> Run:
    """FedAvg with a checkpoint of every round, so that what was sent is on record."""
    return make_run(checkpoints={"every": 1, "keep_locals": "all"}, rounds={"count": 2, "participants": 3})


def test_distances_against_plain_loops(every_round: Run, tmp_path: Path) -> None:
    run = every_round
    found = answer(drift.STUDY, [run], tmp_path)
    clients, pairs, rounds = found["clients"], found["pairs"], found["rounds"]
    assert rounds["round"].tolist() == [0, 1, 2]
    assert clients["round_of"].tolist() == [1, 1, 1, 2, 2, 2]
    assert clients["layer"].tolist() == [name for name, _ in run.model.named_parameters()]
    for round in (1, 2):
        w, start, models = run.point(round), run.point(round - 1), run.local_points(round)
        shares = run.shares(sorted(models))
        mean = sum(shares[k] * (models[k] - start) for k in shares)
        here = clients["round_of"] == round
        assert clients["client"][here].tolist() == sorted(models)
        for row, k in zip(np.flatnonzero(here), sorted(models), strict=True):
            D = models[k] - start
            assert clients["distance"][row] == pytest.approx(float((models[k] - w).norm()))
            assert clients["update_norm"][row] == pytest.approx(float(D.norm()))
            assert clients["update_cosine"][row] == pytest.approx(float(D @ mean / D.norm() / mean.norm()))
            assert clients["model_norm"][row] == pytest.approx(float(models[k].norm()))
            assert np.square(clients["layer_distance"][row]).sum() == pytest.approx(clients["distance"][row] ** 2)
            first = run.model.get_parameter(str(clients["layer"][0])).numel()
            assert clients["layer_distance"][row, 0] == pytest.approx(float((models[k] - w)[:first].norm()))
        apart = [float((models[a] - models[b]).norm()) for a, b in itertools.combinations(sorted(models), 2)]
        assert pairs["pair_distance"][pairs["round_of"] == round].tolist() == pytest.approx(apart)
        assert rounds["pair_distance"][round] == pytest.approx(sum(apart) / 3)
        assert rounds["distance"][round] == pytest.approx(clients["distance"][here].mean())
        spread = clients["distance"][here].std(ddof=1) / math.sqrt(3)
        assert rounds["distance_error"][round] == pytest.approx(spread)
        assert rounds["norm"][round] == pytest.approx(float(w.norm()))
        # FedAvg's step is the mean update, and its pieces lie around it
        assert rounds["moved_global"][round] == pytest.approx(float(mean.norm()))
    assert np.isnan(rounds["distance"][0])
    a, b = int(pairs["first"][0]), int(pairs["second"][0])
    D, E = (run.local_points(1)[k] - run.point(0) for k in (a, b))
    assert pairs["pair_cosine"][0] == pytest.approx(float(D @ E / D.norm() / E.norm()))


def test_proximal_loss_against_plain_divergences(every_round: Run, tmp_path: Path) -> None:
    run = every_round
    clients = answer(drift.STUDY, [run], tmp_path, rounds="2", tau=2.0)["clients"]
    for row, k in enumerate(clients["client"]):
        start, inputs = run.point(1), run.examples("train", int(k))[0]
        w = run.local_points(2)[int(k)].clone().requires_grad_()
        p = torch.softmax(outputs(run, start, inputs) / 2, dim=1)
        log_q = torch.log_softmax(outputs(run, w, inputs) / 2, dim=1)
        loss = torch.nn.functional.kl_div(log_q, p, reduction="batchmean")
        slope, away = torch.autograd.grad(loss, w)[0], w.detach() - start
        assert clients["proximal_loss"][row] == pytest.approx(float(loss.detach()), rel=1e-10)
        assert clients["proximal_error"][row] == 0
        assert clients["proximal_gradient_norm"][row] == pytest.approx(float(slope.norm()))
        assert clients["endpoint_cosine"][row] == pytest.approx(float(-away @ slope / away.norm() / slope.norm()))
        assert clients["half_square"][row] == pytest.approx(float(away @ away) / 2)


def test_a_model_that_never_moved_has_no_angle(every_round: Run, tmp_path: Path, monkeypatch) -> None:
    start = every_round.point(1)
    monkeypatch.setattr(every_round, "local_points", lambda round: {0: start.clone(), 3: start + 0.1})
    clients = answer(drift.STUDY, [every_round], tmp_path, rounds="2")["clients"]
    assert clients["proximal_loss"][0] == pytest.approx(0, abs=1e-14)
    assert clients["proximal_gradient_norm"][0] == 0
    assert np.isnan(clients["endpoint_cosine"][0])
    assert np.isnan(clients["update_cosine"][0])
    assert clients["update_cosine"][1] == pytest.approx(1)


def test_a_part_of_the_data_gives_a_standard_error(every_round: Run, tmp_path: Path) -> None:
    full = answer(drift.STUDY, [every_round], tmp_path / "full", rounds="2")["clients"]
    some = answer(drift.STUDY, [every_round], tmp_path / "some", rounds="2", limit=50)["clients"]
    assert (some["proximal_error"] > 0).all()
    assert (np.abs(some["proximal_loss"] - full["proximal_loss"]) < 5 * some["proximal_error"]).all()


def test_without_the_sent_point_the_study_is_refused(run: Run, tmp_path: Path, forget_sent) -> None:
    old = forget_sent(run)
    with pytest.raises(ValueError, match=r"round 4 does not keep the point that was sent; rounds that do: none. Train"):
        answer(drift.STUDY, [old], tmp_path, rounds="4")
    found = answer(drift.STUDY, [old], tmp_path, rounds="4", reference="global")
    clients = found["clients"]
    assert {table.attributes["reference"] for table in found.values()} == {"global"}
    assert np.isnan(clients["update_norm"]).all()
    for row, k in enumerate(clients["client"].tolist()):
        away = run.local_points(4)[k] - run.point(4)
        assert clients["half_square"][row] == pytest.approx(float(away @ away) / 2)
    quick = answer(drift.STUDY, [run], tmp_path / "quick", rounds="4", proximal=False)
    assert "proximal_loss" not in quick["clients"].variables


def test_an_answer_depends_on_its_own_rounds_only(every_round: Run) -> None:
    assert drift.STUDY.rounds(every_round, drift.Settings(rounds="2")) == [2]


def test_rounds_that_kept_nothing(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(checkpoints={"every": 2, "keep_locals": "last"})
    found = answer(drift.STUDY, [run], tmp_path)
    assert found["rounds"]["round"].tolist() == [0, 2, 4]
    assert found["clients"]["round_of"].tolist() == [4, 4, 4]
    with pytest.raises(ValueError, match="round 2 keeps no local models; rounds that do: 4"):
        answer(drift.STUDY, [run], tmp_path / "none", rounds="0,2")


def test_settings_and_subjects_that_make_no_sense(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'sent'"):
        drift.Settings(reference="send")
    with pytest.raises(ValueError, match="tau must be positive"):
        drift.Settings(tau=0)
    own = Own("mine", tmp_path, run.model, run.point(4), {"train": run.examples("train")}, "x")
    with pytest.raises(ValueError, match="a single model has no clients"):
        answer(drift.STUDY, [own], tmp_path)


def test_read_again(run: Run, tmp_path: Path) -> None:
    check_reading(drift.STUDY, run, tmp_path)


def test_interrupted(run: Run, tmp_path: Path) -> None:
    check_interruption(drift.STUDY, run, tmp_path)
