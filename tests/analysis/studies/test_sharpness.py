"""Sharpness of global and local models against plain loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.studies import sharpness
from analysis.subjects import Limits, Own, Run
from landscape.geometry.sharpness import KINDS
from landscape.objectives.batches import join
from tests.analysis.studies.test_curvature import dense
from tests.analysis.studies.test_drift import answer, check_interruption, check_reading, gradient_at, loss_at


def test_one_step_against_plain_gradients(run: Run, tmp_path: Path) -> None:
    found = answer(sharpness.STUDY, [run], tmp_path, rounds="2,4", kinds=("asam_all", "sam"), radius=0.1)
    local, shared = found["local_models"], found["global_model"]
    assert local["radius"].tolist() == [0.5, 0.1]
    assert local["round_of"].tolist() == [2, 2, 2, 4, 4, 4]

    def plain(theta, client):
        g = gradient_at(run, theta, client)
        adaptive = 0.5 * theta.square() * g / (theta.abs() * g).norm()
        base = loss_at(run, theta, client)
        rises = [float(loss_at(run, theta + e, client) - base) for e in (adaptive, 0.1 * g / g.norm())]
        return rises, float(base), float(g.norm())

    for row, (round, k) in enumerate(zip(local["round_of"], local["client"], strict=True)):
        w = run.local_points(int(round))[int(k)]
        for name, client in (("local", int(k)), ("global", None)):
            rises, base, length = plain(w, client)
            assert local[f"{name}_value"][row].tolist() == pytest.approx(rises, rel=1e-9)
            assert local[f"{name}_base"][row].tolist() == pytest.approx([base, base])
            assert local[f"{name}_gradient_norm"][row].tolist() == pytest.approx([length, length])
    for row, round in enumerate((2, 4)):
        w = run.point(round)
        assert shared["global_value"][row].tolist() == pytest.approx(plain(w, None)[0], rel=1e-9)
        for k in run.clients:
            assert shared["local_value"][row, k].tolist() == pytest.approx(plain(w, k)[0], rel=1e-9)
    assert np.isnan(shared["global_standard_error"]).all()


def test_maximum_and_average_against_the_hessian(run: Run, tmp_path: Path) -> None:
    kinds = ("sam", "sam_max", "average")
    # so small that no ReLU switches: a Hessian knows nothing of kinks
    settings = {"kinds": kinds, "radius": 1e-4, "noise": 1e-5, "samples": 60, "clients": 1, "steps": 40}
    shared = answer(sharpness.STUDY, [run], tmp_path, **settings, everyone=False)["global_model"]
    w = run.point(4)
    H, g = dense(run, w, *run.examples("train")), gradient_at(run, w)
    one_step, maximum, average = shared["global_value"][0]
    u, linear = g / g.norm(), 1e-4 * float(g.norm())
    assert one_step - linear == pytest.approx(0.5e-8 * float(u @ H @ u), rel=1e-3)
    # the best within a small ball is at most radius^2 lambda_max / 2 above the linear part
    top = float(torch.linalg.eigvalsh(H)[-1])
    assert one_step <= maximum <= linear + 0.5e-8 * top * (1 + 1e-3)
    assert shared["global_evaluations"][0, 1] > 40
    assert abs(average - 0.5e-10 * float(H.trace())) < 5 * shared["global_standard_error"][0, 2]
    assert shared["global_standard_error"][0, 2] < 0.2 * average


def test_batches_of_m_examples(run: Run, tmp_path: Path) -> None:
    found = answer(sharpness.STUDY, [run], tmp_path, kinds=("sam",), m=40, clients=2)["local_models"]
    assert len(found["row"]) == 2
    k = int(found["client"][0])
    w, (inputs, labels) = run.local_points(4)[k], run.examples("train", k)
    rises, sizes = [], []
    for start in range(0, len(labels), 40):
        part = run.objective("train", k).on(inputs[start : start + 40], labels[start : start + 40])
        g = part.gradient(w)
        rises.append(part.loss(w + 0.05 * g / g.norm()) - part.loss(w))
        sizes.append(part.count)
    assert found["local_value"][0, 0] == pytest.approx(np.average(rises, weights=sizes), rel=1e-10)
    assert found["local_standard_error"][0, 0] > 0


def test_a_part_of_the_data_gives_a_standard_error(run: Run, tmp_path: Path) -> None:
    settings = {"kinds": ("sam", "average"), "clients": 1, "samples": 2}
    some = answer(sharpness.STUDY, [run], tmp_path / "some", limit=300, **settings)["global_model"]
    full = answer(sharpness.STUDY, [run], tmp_path / "full", **settings)["global_model"]
    everyone = len(run.examples("train")[1])
    assert (some.attributes["examples"], some.attributes["population"]) == (300, everyone)
    assert full.attributes["examples"] == everyone
    assert (full["global_sampling_error"] == 0).all()
    error = some["global_sampling_error"][0, 0]
    assert 0 < error < 0.5 * some["global_value"][0, 0]
    assert abs(some["global_value"][0, 0] - full["global_value"][0, 0]) < 5 * error
    assert np.isnan(some["global_sampling_error"][0, 1])  # many perturbations, not one
    # the perturbation held, against the examples themselves; they are drawn by class, so that classes do not count
    part, w = run.objective("train", limit=300), run.point(4)
    g = part.gradient(w)
    e = 0.05 * g / g.norm()
    rises = np.asarray([one.loss(w + e) - one.loss(w) for one in part.split(1)])
    labels = join(part.chunks)[1].numpy()
    within = sum((labels == c).sum() * rises[labels == c].var(ddof=1) for c in range(10)) / 300
    assert error == pytest.approx((within / 300 * (1 - 300 / everyone)) ** 0.5, rel=0.4)  # 19 degrees of freedom


def test_every_kind_has_a_radius(run: Run, tmp_path: Path) -> None:
    assert set(sharpness.RADII) == set(KINDS)
    found = answer(
        sharpness.STUDY, [run], tmp_path, kinds=tuple(KINDS), steps=2, samples=2, clients=1, limit=40, everyone=False
    )
    assert np.isfinite(found["local_models"]["local_value"]).all()
    assert "global_value" not in found["local_models"].variables
    values = dict(zip(KINDS, found["global_model"]["global_value"][0], strict=True))
    assert values["sam_max"] >= values["sam"] > 0
    assert values["asam_max"] >= values["asam_all"] > 0


def test_a_model_of_ones_own(run: Run, tmp_path: Path) -> None:
    data = {"train": run.examples("train")}
    own = Own("mine", tmp_path, run.model, run.point(4), data, "x", limits=Limits(workers=1, dtype=torch.float64))
    found = answer(sharpness.STUDY, [own], tmp_path, kinds=("sam",))
    assert list(found) == ["global_model"]
    of_run = answer(sharpness.STUDY, [run], tmp_path / "run", kinds=("sam",))["global_model"]
    assert found["global_model"]["global_value"][0, 0] == pytest.approx(of_run["global_value"][0, 0], rel=1e-12)


def test_a_run_without_local_models(make_run, tmp_path: Path) -> None:
    run = make_run(checkpoints={"every": 4, "keep_locals": "none"})
    found = answer(sharpness.STUDY, [run], tmp_path, rounds="all", kinds=("sam",), clients=1)
    assert list(found) == ["global_model"]
    assert found["global_model"]["round"].tolist() == [0, 4]


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="did you mean 'asam'"):
        sharpness.Settings(kinds=("asamm",))
    with pytest.raises(ValueError, match="noise must be positive"):
        sharpness.Settings(kinds=("average",), noise=0.0)
    with pytest.raises(ValueError, match="kinds must name at least one of sam, sam_max"):
        sharpness.Settings(kinds=())
    with pytest.raises(ValueError, match="m must be a whole number"):
        sharpness.Settings(m=0)


def test_read_again(run: Run, tmp_path: Path) -> None:
    check_reading(sharpness.STUDY, run, tmp_path, kinds=("sam", "average"), samples=3, clients=2)


def test_interrupted(run: Run, tmp_path: Path) -> None:
    check_interruption(sharpness.STUDY, run, tmp_path, kinds=("sam_max", "average"), samples=3, steps=2, clients=2)
