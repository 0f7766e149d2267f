"""Surfaces against plain loops, dense Hessians and landscape.plane; ranges against the formula."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn import functional

from analysis import runner, store
from analysis.shared import grids
from analysis.shared.model_points import ModelPoint
from analysis.studies import surface
from analysis.subjects import Limits, Own, Run, Subject
from landscape import directions
from landscape import plane as whole_plane
from tests.analysis.helpers import ask, ask_all, assert_same, check_reading, plan
from training.settings import build


def plain(model: nn.Module, theta: Tensor, data: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Loss and error by functional_call on all data at once; statistics, if any, follow the weights."""
    named = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if b.is_floating_point())]
    parts = torch.split(theta, [tensor.numel() for _, tensor in named])
    tensors = {name: part.view_as(tensor) for (name, tensor), part in zip(named, parts, strict=True)}
    with torch.no_grad():
        outputs = torch.func.functional_call(copy.deepcopy(model).double().eval(), tensors, (data[0],))
    wrong = (outputs.argmax(dim=1) != data[1]).double().mean()
    return float(functional.cross_entropy(outputs, data[1])), float(wrong)


def filters(model: nn.Module, vector: Tensor) -> list[Tensor]:
    """Norms of the rows of every weight matrix, and of every other tensor as a whole."""
    parts = torch.split(vector, [tensor.numel() for tensor in model.parameters()])
    shaped = [part.view_as(tensor) for part, tensor in zip(parts, model.parameters(), strict=True)]
    return [part.norm(dim=1) if part.ndim == 2 else part.norm()[None] for part in shaped]


def test_every_cell_against_a_plain_loop(runs: list[Run], tmp_path: Path) -> None:
    found = ask("surface", runs, tmp_path, steps=5, extent=0.5, seed=3)
    assert found["model_run"].values.tolist() == [run.name for run in runs]
    assert found["model_round"].values.tolist() == [4, 4]
    assert found["model_client"].values.tolist() == [-1, -1]
    assert found["x"].values.tolist() == found["y"].values.tolist() == [-0.5, -0.25, 0.0, 0.25, 0.5]
    assert found["loss"].dims == ("model", "split", "x", "y")
    assert found["done"].dtype == bool
    assert found["done"].all()
    for number, run in enumerate(runs):
        one = found.sel(model=number)
        theta = run.point(4)
        d1, d2 = directions.filter_normalized(run.objective().layout, theta, seed=3)
        for d in (d1, d2):
            for norm, of_d, tensor in zip(
                filters(run.model, theta), filters(run.model, d), run.model.parameters(), strict=True
            ):
                torch.testing.assert_close(of_d, norm if tensor.ndim == 2 else torch.zeros_like(norm))
        assert float(one["cosine"]) == pytest.approx(float(d1 @ d2 / d1.norm() / d2.norm()))
        assert one["length"].values == pytest.approx([float(d1.norm()), float(d2.norm())])
        for split in ("train", "test"):
            data = run.examples(split)
            for x in found["x"].values:
                for y in found["y"].values:
                    loss, error = plain(run.model, theta + x * d1 + y * d2, data)
                    cell = one.sel(split=split, x=x, y=y)
                    assert float(cell["loss"]) == pytest.approx(loss, rel=1e-12)
                    assert float(cell["error"]) == pytest.approx(error, abs=1e-12)


def test_the_same_bits_as_landscape_plane_in_blocks_of_rows_or_whole(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ask_all("surface", [run], tmp_path / "whole", steps=5, extent=0.5)
    theta, objective = run.point(4), run.objective("test")
    expected = whole_plane(
        objective, theta, *directions.filter_normalized(objective.layout, theta), steps=5, extent=0.5
    )
    loss = whole.data["loss"].sel(model=0, split="test")
    np.testing.assert_array_equal(loss, expected.loss)
    assert float(loss.sel(x=0.0, y=0.0)) == objective.loss(theta)

    monkeypatch.setattr(grids, "AT_ONCE", 2 * 5 * len(run.examples("train")[1]))
    planned = plan("surface", [run], tmp_path / "rows", steps=5, extent=0.5)
    rows = [piece for piece in planned.pieces if piece.split == "train"]
    assert [(piece.first, piece.stop) for piece in rows] == [(0, 2), (2, 4), (4, 5)]
    assert_same(store.read(runner.carry_out(planned)), whole)


def test_one_and_two_workers_agree_to_the_bit(run: Run, tmp_path: Path) -> None:
    two = Run(run.path, limits=Limits(workers=2))
    one = ask_all("surface", [run], tmp_path / "one", steps=4, axes="eigen", clients=1)
    assert_same(one, ask_all("surface", [two], tmp_path / "two", steps=4, axes="eigen", clients=1))


def test_shared_axes_are_the_first_models(runs: list[Run], tmp_path: Path) -> None:
    own = ask("surface", runs, tmp_path / "own", steps=3, extent=0.5)
    shared = ask("surface", runs, tmp_path / "shared", steps=3, extent=0.5, axes="shared")
    np.testing.assert_array_equal(own["loss"].sel(model=0), shared["loss"].sel(model=0))
    assert (shared["length"] == own["length"].sel(model=0)).all()
    assert (own["length"].sel(model=1) != own["length"].sel(model=0)).any()
    d1, d2 = directions.filter_normalized(runs[0].objective().layout, runs[0].point(4))
    expected, _ = plain(runs[1].model, runs[1].point(4) - 0.5 * d1 + 0.5 * d2, runs[1].examples("train"))
    assert float(shared["loss"].sel(model=1, split="train", x=-0.5, y=0.5)) == pytest.approx(expected, rel=1e-12)


def test_eigenvectors_are_those_of_the_dense_hessian_and_keep_unit_length(run: Run, tmp_path: Path) -> None:
    found = ask("surface", [run], tmp_path, steps=5, axes="eigen", tol=1e-7, rise=0.5).sel(model=0)
    data, theta = run.examples("train"), run.point(4)
    parts = [tensor.numel() for tensor in run.model.parameters()]

    def loss(vector: Tensor) -> Tensor:
        tensors = {
            name: part.view_as(tensor)
            for (name, tensor), part in zip(run.model.named_parameters(), torch.split(vector, parts), strict=True)
        }
        return functional.cross_entropy(torch.func.functional_call(run.model, tensors, (data[0],)), data[1])

    values, vectors = torch.linalg.eigh(torch.func.hessian(loss)(theta))
    top = values[[-1, -2]].numpy()
    np.testing.assert_allclose(found["curvature"], top, rtol=1e-9)
    np.testing.assert_allclose(found["length"], 1.0, rtol=1e-12)
    assert abs(float(found["cosine"])) < 1e-6
    assert (found["residual"].values <= 1e-7 * top).all()
    v1, v2 = (v * torch.sign(v[v.abs().argmax()]) for v in (vectors[:, -1], vectors[:, -2]))
    edges = [float(found[axis][-1]) for axis in ("x", "y")]
    assert edges == [float(f"{math.sqrt(2 * 0.5 / value):.2g}") for value in top]
    for x in found["x"].values:
        for y in found["y"].values:
            expected = float(loss(theta + x * v1 + y * v2))
            assert float(found["loss"].sel(split="train", x=x, y=y)) == pytest.approx(expected, rel=1e-4)


def axes(curvature: list[float], norm: float = 1e3, length: float = 1.0) -> xr.Dataset:
    return xr.Dataset({"curvature": ("axis", curvature), "norm": norm, "length": ("axis", [length, length])})


@pytest.mark.parametrize(
    ("kind", "found", "expected"),
    [
        ("eigen", [axes([8.0, 2.0])], (0.5, 1.0)),  # sqrt(2 / lambda), each axis its own
        ("eigen", [axes([8.0, 2.0]), axes([2.0, 0.5])], (1.0, 2.0)),  # the flattest needs most
        ("eigen", [axes([800.0, 2.0]), axes([2.0, 0.5])], (float(f"{0.05 * 10**0.5:.2g}"), 2.0)),  # sharpest: 10 x
        ("eigen", [axes([-8.0, 0.0], norm=3.0)], (0.5, 3.0)),  # a flat axis ends at the model's norm
        ("random", [axes([8.0, 2.0])], (1.0, 1.0)),  # random axes are alike
        ("random", [axes([8.0, 1e-4], length=10.0)], (1.0, 1.0)),  # never more than the filters themselves
    ],
)
def test_range_from_curvature(kind: surface.Axes, found: list[xr.Dataset], expected: tuple[float, float]) -> None:
    assert surface.find_reach(surface.Settings(axes=kind), found) == expected


def test_the_second_derivative_along_random_axes(run: Run, tmp_path: Path) -> None:
    h = 1e-3
    found = ask("surface", [run], tmp_path, steps=3, extent=h).sel(model=0)
    loss = found["loss"].sel(split="train").values
    along_x, along_y = found["curvature"].sel(axis=["x", "y"]).values
    assert along_x == pytest.approx((loss[2, 1] - 2 * loss[1, 1] + loss[0, 1]) / h**2, rel=1e-3)
    assert along_y == pytest.approx((loss[1, 2] - 2 * loss[1, 1] + loss[1, 0]) / h**2, rel=1e-3)


def test_participants_on_their_own_data_and_on_everyones(run: Run, tmp_path: Path) -> None:
    found = ask("surface", [run], tmp_path, rounds="2,4", steps=3, extent=0.3, clients=2, splits=("test",))
    whole, local = (
        found.isel(model=found["model_client"].values < 0),
        found.isel(model=found["model_client"].values >= 0),
    )
    assert whole["model_round"].values.tolist() == [2, 4]
    assert found["split"].values.tolist() == ["test", "own", "train"]
    for some, unknown in ((whole, ["own", "train"]), (local, ["test"])):  # what was not asked for is missing
        for split in unknown:
            assert some["loss"].sel(split=split).isnull().all()
            assert not some["done"].sel(split=split).any()
            assert not some["examples"].sel(split=split).any()
    models = [(round, client) for round in (2, 4) for client in sorted(run.local_points(round))[:2]]
    origin = zip(local["model_round"].values.tolist(), local["model_client"].values.tolist(), strict=True)
    assert list(origin) == models
    sizes = {client: len(run.examples("train", client)[1]) for client in run.clients}
    counts = local["examples"].sel(split=["own", "train"]).values.tolist()
    assert counts == [[sizes[client], sum(sizes.values())] for _, client in models]
    for number, (round, client) in enumerate(models):
        theta = run.local_points(round)[client]
        d1, d2 = directions.filter_normalized(run.objective().layout, theta)
        moved = theta + 0.3 * d1 - 0.3 * d2
        cell = local.isel(model=number).sel(x=0.3, y=-0.3)
        own, error = plain(run.model, moved, run.examples("train", client))
        assert float(cell["loss"].sel(split="own")) == pytest.approx(own, rel=1e-12)
        assert float(cell["error"].sel(split="own")) == pytest.approx(error, abs=1e-12)
        shares = run.shares(run.clients)
        everyone = sum(p * plain(run.model, moved, run.examples("train", k))[0] for k, p in shares.items())
        assert float(cell["loss"].sel(split="train")) == pytest.approx(everyone, rel=1e-12)


def normed(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()
        model.train()(torch.randn(40, 3, dtype=torch.float64) * 2 + 1)
    return model.eval()


def own_subject(path: Path) -> Subject:
    model = normed()
    generator = torch.Generator().manual_seed(1)
    data = {
        split: (
            torch.randn(n, 3, generator=generator, dtype=torch.float64),
            torch.randint(3, (n,), generator=generator),
        )
        for split, n in (("train", 37), ("test", 11))
    }
    buffers = [b.reshape(-1) for b in model.buffers() if b.is_floating_point()]
    theta = torch.cat([*(p.detach().reshape(-1) for p in model.parameters()), *buffers])
    return Own("mine", path, model, theta, data, "print", Limits(workers=1, dtype=torch.float64))


@pytest.mark.parametrize("kind", get_args(surface.Axes))
def test_running_statistics_stay_at_the_centre(tmp_path: Path, kind: surface.Axes) -> None:
    subject = own_subject(tmp_path)
    found = ask("surface", [subject], tmp_path, steps=3, extent=0.4, axes=kind, tol=1e-9)
    assert found.attrs["batchnorm"] == "frozen"
    found = found.sel(model=0)
    objective = subject.objective()
    theta = subject.point(0)
    weights = sum(p.numel() for p in subject.model.parameters())
    if kind == "eigen":
        values, vectors = torch.linalg.eigh(objective.hessian(theta).dense()[:weights, :weights])
        both = [vectors[:, -1], vectors[:, -2]]
        d1, d2 = (torch.cat([v * torch.sign(v[v.abs().argmax()]), torch.zeros(10).double()]) for v in both)
        np.testing.assert_allclose(found["curvature"], values[[-1, -2]], rtol=1e-8)
        loose = surface.measure_axes([subject], surface.Settings(axes=kind, tol=1e-2), ModelPoint(0, 0))
        assert not loose["_directions"].values[:, weights:].any()  # to the bit, also where eigenvectors are only near
    else:
        d1, d2 = directions.filter_normalized(objective.layout, theta)
    assert not d1[weights:].any()
    for split in ("train", "test"):
        expected, _ = plain(subject.model, theta + 0.4 * d1 - 0.4 * d2, subject.examples(split))
        assert float(found["loss"].sel(split=split, x=0.4, y=-0.4)) == pytest.approx(expected, rel=1e-6)
    assert float(found["norm"]) == pytest.approx(float(theta[:weights].norm()))


def test_a_subset_has_a_standard_error(run: Run, tmp_path: Path) -> None:
    some = ask("surface", [run], tmp_path, steps=2, extent=0.5, limit=200)
    assert (some["standard_error"] > 0).all()
    everything = ask("surface", [run], tmp_path, steps=2, extent=0.5)
    assert everything["standard_error"].isnull().all()
    assert (abs(some["loss"] - everything["loss"]) < 5 * some["standard_error"]).all()


def test_interrupted_it_goes_on(runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"steps": 3, "axes": "eigen"}
    straight = ask_all("surface", runs, tmp_path / "straight", **settings)
    real, done = surface.measure_rows, []

    def stop(*given: Any) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append(1)
        return real(*given)

    monkeypatch.setattr(surface, "measure_rows", stop)
    with pytest.raises(KeyboardInterrupt):
        ask("surface", runs, tmp_path / "broken", **settings)
    assert not list(store.find_answers(tmp_path / "broken"))
    monkeypatch.setattr(surface, "measure_rows", real)
    planned = plan("surface", runs, tmp_path / "broken", **settings)
    assert planned.done == 3  # two pairs of axes, one surface
    assert_same(store.read(runner.carry_out(planned)), straight)


def test_xarray_reads_it_with_every_axis_named(runs: list[Run], tmp_path: Path) -> None:
    check_reading("surface", runs[0], tmp_path, steps=3, extent=0.5, clients=1)
    found = ask("surface", runs, tmp_path, steps=3, extent=0.5, clients=1)
    assert found["loss"].sel(x=0.0, y=0.0, model=1).dims == ("split",)
    of_clients = found["loss"].set_xindex("model_client").sel(model_client=-1, split="train")  # global models
    assert of_clients.dims == ("model", "x", "y")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"axes": "eigne"}, "axes must be 'random', 'shared' or 'eigen'"),
        ({"steps": 1}, "steps must be at least 2, got 1"),
        ({"extent": -1.0}, "extent must be above 0"),
        ({"rise": 0.0}, "rise must be above 0"),
        ({"splits": ()}, "splits must be a list of some of train, test"),
        ({"splits": ("train", "train")}, "each once"),
        ({"splits": "train"}, "splits must be a list"),
        ({"clients": -1}, "clients must be at least 0, got -1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(surface.Settings, settings, "study surface")


def test_what_is_not_there_is_said(run: Run, make_run: Callable[..., Run], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no checkpoint of round 3; there are 0, 2, 4"):
        ask("surface", [run], tmp_path, rounds="3")
    with pytest.raises(ValueError, match="round 0 keeps no local models; rounds that do: 2, 4"):
        ask("surface", [run], tmp_path, rounds="0", clients=1)
    other = make_run(model={"name": "mlp", "hidden": [3]})
    with pytest.raises(ValueError, match=r"models must be of one architecture, but '.*' has shape"):
        ask("surface", [run, other], tmp_path, axes="shared")
    both = ask("surface", [run, other], tmp_path, steps=2, extent=0.5)  # each in its own axes is no harm
    assert np.isfinite(both["loss"]).all()
    only = own_subject(tmp_path)
    del only.data["test"]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"there is no test data, only train; use that"):
        ask("surface", [only], tmp_path)


def test_runs_of_one_name_are_told_apart(run: Run, tmp_path: Path) -> None:
    found = ask("surface", [run, Run(run.path, limits=Limits(workers=1))], tmp_path, steps=2, extent=0.5)
    assert found["model_run"].values.tolist() == [f"{run.name} (1)", f"{run.name} (2)"]
    np.testing.assert_array_equal(found["loss"].sel(model=0), found["loss"].sel(model=1))
