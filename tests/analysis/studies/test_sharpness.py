"""Sharpness of global and local models against plain loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.studies import sharpness
from analysis.subjects import Limits, Own, Run
from landscape.geometry.sharpness import KINDS
from landscape.losses.batches import join
from tests.analysis.helpers import ask, check_interruption, check_reading, dense, gradient_at, loss_at
from training.settings import build


def test_one_step_against_plain_gradients(run: Run, tmp_path: Path) -> None:
    found = ask("sharpness", [run], tmp_path, rounds="2,4", kinds=("asam_all", "sam"), radius=0.1)
    assert found["radius"].values.tolist() == [0.5, 0.1]

    def plain(theta, client):
        g = gradient_at(run, theta, client)
        adaptive = 0.5 * theta.square() * g / (theta.abs() * g).norm()
        base = loss_at(run, theta, client)
        rises = [float(loss_at(run, theta + e, client) - base) for e in (adaptive, 0.1 * g / g.norm())]
        return rises, float(base), float(g.norm())

    for round in (2, 4):
        here, models, w = found.sel(round=round), run.local_points(round), run.point(round)
        assert here["client"][here["local_value"].notnull().all("kind")].values.tolist() == sorted(models)
        for k, model in models.items():
            local = here.sel(client=k)
            for name, client in (("local", k), ("global", None)):
                rises, base, length = plain(model, client)
                assert local[f"{name}_value"].values.tolist() == pytest.approx(rises, rel=1e-9)
                assert local[f"{name}_base"].values.tolist() == pytest.approx([base, base])
                assert local[f"{name}_gradient_norm"].values.tolist() == pytest.approx([length, length])
        assert here["global_model_value"].values.tolist() == pytest.approx(plain(w, None)[0], rel=1e-9)
        for k in run.clients:
            rises = here["global_model_on_client_value"].sel(client=k)
            assert rises.values.tolist() == pytest.approx(plain(w, k)[0], rel=1e-9)
    assert found["global_model_standard_error"].isnull().all()


def test_maximum_and_average_against_the_hessian(run: Run, tmp_path: Path) -> None:
    kinds = ("sam", "sam_max", "average")
    # so small that no ReLU switches: a Hessian knows nothing of kinks
    settings = {"kinds": kinds, "radius": 1e-4, "noise": 1e-5, "samples": 60, "clients": 1, "steps": 40}
    shared = ask("sharpness", [run], tmp_path, **settings, everyone=False).isel(round=0)
    w = run.point(4)
    H, g = dense(run, w, *run.examples("train")), gradient_at(run, w)
    one_step, maximum, average = shared["global_model_value"].values
    u, linear = g / g.norm(), 1e-4 * float(g.norm())
    assert one_step - linear == pytest.approx(0.5e-8 * float(u @ H @ u), rel=1e-3)
    # the best within a small ball is at most radius^2 lambda_max / 2 above the linear part
    top = float(torch.linalg.eigvalsh(H)[-1])
    assert one_step <= maximum <= linear + 0.5e-8 * top * (1 + 1e-3)
    assert shared["global_model_evaluations"].sel(kind="sam_max") > 40
    error = float(shared["global_model_standard_error"].sel(kind="average"))
    assert abs(average - 0.5e-10 * float(H.trace())) < 5 * error
    assert error < 0.2 * average


def test_batches_of_m_examples(run: Run, tmp_path: Path) -> None:
    found = ask("sharpness", [run], tmp_path, kinds=("sam",), m=40, clients=2)
    local = found.sel(round=4, kind="sam").dropna("client", subset=["local_value"])
    assert len(local["client"]) == 2
    k = int(local["client"][0])
    w, (inputs, labels) = run.local_points(4)[k], run.examples("train", k)
    rises, sizes = [], []
    for start in range(0, len(labels), 40):
        part = run.objective("train", k).on(inputs[start : start + 40], labels[start : start + 40])
        g = part.gradient(w)
        rises.append(part.loss(w + 0.05 * g / g.norm()) - part.loss(w))
        sizes.append(part.count)
    assert float(local["local_value"][0]) == pytest.approx(np.average(rises, weights=sizes), rel=1e-10)
    assert local["local_standard_error"][0] > 0


def test_a_part_of_the_data_gives_a_standard_error(run: Run, tmp_path: Path) -> None:
    settings = {"kinds": ("sam", "average"), "clients": 1, "samples": 2}
    some = ask("sharpness", [run], tmp_path / "some", limit=300, **settings)
    full = ask("sharpness", [run], tmp_path / "full", **settings)
    everyone = len(run.examples("train")[1])
    assert (some.attrs["examples"], some.attrs["population"]) == (300, everyone)
    assert full.attrs["examples"] == everyone
    assert (full["global_model_sampling_error"] == 0).all()
    error = float(some["global_model_sampling_error"].sel(round=4, kind="sam"))
    seen, exact = (float(one["global_model_value"].sel(round=4, kind="sam")) for one in (some, full))
    assert 0 < error < 0.5 * seen
    assert abs(seen - exact) < 5 * error
    assert some["global_model_sampling_error"].sel(kind="average").isnull().all()  # many perturbations, not one
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
    found = ask(
        "sharpness", [run], tmp_path, kinds=tuple(KINDS), steps=2, samples=2, clients=1, limit=40, everyone=False
    )
    assert int(found["local_value"].count()) == len(KINDS)  # of one participant
    assert "global_value" not in found
    values = found["global_model_value"].sel(round=4)
    assert values.sel(kind="sam_max") >= values.sel(kind="sam") > 0
    assert values.sel(kind="asam_max") >= values.sel(kind="asam_all") > 0


def test_a_model_of_ones_own(run: Run, tmp_path: Path) -> None:
    data = {"train": run.examples("train")}
    own = Own("mine", tmp_path, run.model, run.point(4), data, "x", limits=Limits(workers=1, dtype=torch.float64))
    found = ask("sharpness", [own], tmp_path, kinds=("sam",))
    assert all(str(name).startswith("global_model_") for name in found)
    of_run = ask("sharpness", [run], tmp_path / "run", kinds=("sam",))
    assert found["global_model_value"].item() == pytest.approx(of_run["global_model_value"].item(), rel=1e-12)


def test_a_run_without_local_models(make_run, tmp_path: Path) -> None:
    run = make_run(checkpoints={"every": 4, "keep_locals": "none"})
    found = ask("sharpness", [run], tmp_path, rounds="all", kinds=("sam",), clients=1)
    assert all(str(name).startswith("global_model_") for name in found)
    assert found["round"].values.tolist() == [0, 4]


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="did you mean 'asam'"):
        build(sharpness.Settings, {"kinds": ("asamm",)}, "sharpness")
    with pytest.raises(ValueError, match="noise must be above 0, got 0"):
        build(sharpness.Settings, {"kinds": ("average",), "noise": 0.0}, "sharpness")
    with pytest.raises(ValueError, match="kinds must be a list of some of sam, sam_max"):
        build(sharpness.Settings, {"kinds": ()}, "sharpness")
    with pytest.raises(ValueError, match="m must be at least 1, got 0"):
        build(sharpness.Settings, {"m": 0}, "sharpness")


def test_read_again(run: Run, tmp_path: Path) -> None:
    check_reading("sharpness", run, tmp_path, kinds=("sam", "average"), samples=3, clients=2)


def test_interrupted(run: Run, tmp_path: Path) -> None:
    check_interruption("sharpness", run, tmp_path, kinds=("sam_max", "average"), samples=3, steps=2, clients=2)
