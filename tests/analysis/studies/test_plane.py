"""Planes through three models: positions in closed form, every cell against a plain loop, refusals in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn import functional

from analysis.shared import grids
from analysis.studies import plane
from analysis.subjects import Limits, Own, Run
from tests.analysis.helpers import ask, ask_all, assert_same, check_reading, plan
from tests.analysis.studies.test_surface import normed, plain
from training.settings import build


@dataclass
class Several(Own):
    """A model of one's own at several rounds."""

    points: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rounds = list(range(len(self.points)))

    def point(self, round: int, model: str = "server") -> Tensor:
        return self.points[round]


def flat(model: nn.Module) -> Tensor:
    buffers = [b.reshape(-1) for b in model.buffers() if b.is_floating_point()]
    return torch.cat([*(p.detach().reshape(-1) for p in model.parameters()), *buffers])


def several(path: Path, points: list[Tensor]) -> Several:
    generator = torch.Generator().manual_seed(5)
    data = {
        split: (torch.randn(n, 3, generator=generator).double(), torch.randint(3, (n,), generator=generator))
        for split, n in (("train", 37), ("test", 11))
    }
    limits = Limits(workers=1, dtype=torch.float64)
    return Several("mine", path, normed(), points[0], data, "print", limits, points=points)


def frame_by_hand(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    u = (b - a) / (b - a).norm()
    v = (c - a) - ((c - a) @ u) * u
    return u, v / v.norm()


def check_cells(run: Run, found: xr.Dataset, points: list[Tensor]) -> None:
    """found: one plane."""
    u, v = frame_by_hand(*points)
    for split in found["split"].values.tolist():
        for i, x in enumerate(found["x"].values):
            for j, y in enumerate(found["y"].values):
                loss, error = plain(run.model, points[0] + x * u + y * v, run.examples(split))
                cell = found.sel(split=split, x_index=i, y_index=j)
                assert float(cell["loss"]) == pytest.approx(loss, rel=1e-10)
                assert float(cell["error"]) == pytest.approx(error, abs=1e-12)


def origin(found: xr.Dataset) -> list[tuple[str, int, int]]:
    """Run, round and client of the models of a plane."""
    columns = (found[f"model_{name}"].values.tolist() for name in ("run", "round", "client"))
    return list(zip(*columns, strict=True))


def test_three_clients_and_the_global_model(run: Run, tmp_path: Path) -> None:
    found = ask("plane", [run], tmp_path, steps=4).sel(plane=0)
    clients = sorted(run.local_points(4))
    points = [run.local_points(4)[client] for client in clients]
    assert origin(found) == [(run.name, 4, client) for client in (*clients, -1)]
    assert found["model"].values.tolist() == ["a", "b", "c", "global"]
    place = np.stack([found["model_x"], found["model_y"]], axis=1)
    assert place[0].tolist() == [0.0, 0.0]
    assert place[1, 1] == 0.0
    assert place[2, 1] > 0
    for i in range(3):  # the picture is not sheared: distances in it are distances of weights
        for j in range(i):
            distance = float((points[i] - points[j]).norm())
            assert np.linalg.norm(place[i] - place[j]) == pytest.approx(distance, rel=1e-12)
    assert found["distance"].sel(model=["a", "b", "c"]).values.tolist() == [0.0, 0.0, 0.0]
    off = float(found["distance"].sel(model="global"))
    assert off**2 + (place[3] ** 2).sum() == pytest.approx(float((run.point(4) - points[0]).norm()) ** 2)
    for split in ("train", "test"):
        for model, theta in zip(found["model"].values, [*points, run.point(4)], strict=True):
            loss, error = plain(run.model, theta, run.examples(split))
            assert float(found["model_loss"].sel(split=split, model=model)) == pytest.approx(loss, rel=1e-12)
            assert float(found["model_error"].sel(split=split, model=model)) == pytest.approx(error, abs=1e-12)
    assert found["examples"].values.tolist() == [len(run.examples(split)[1]) for split in ("train", "test")]
    corners = place[:3]
    rim = 0.2 * (corners.max(axis=0) - corners.min(axis=0))
    low, high = corners.min(axis=0) - rim, corners.max(axis=0) + rim
    np.testing.assert_allclose([found["x"][0], found["y"][0]], low)
    np.testing.assert_allclose([found["x"][-1], found["y"][-1]], high)
    check_cells(run, found, points)


def test_the_first_participants_own_loss_over_the_same_plane(run: Run, tmp_path: Path) -> None:
    found = ask("plane", [run], tmp_path, steps=3, splits=("train",), own=True).isel(plane=0)
    assert found["split"].values.tolist() == ["train", "own"]
    clients = sorted(run.local_points(4))[:3]
    data = run.examples("train", clients[0])
    assert found["examples"].sel(split="own") == len(data[1])
    points = [run.local_points(4)[client] for client in clients]
    u, v = frame_by_hand(*points)
    for i, x in enumerate(found["x"].values):
        for j, y in enumerate(found["y"].values):
            loss, _ = plain(run.model, points[0] + x * u + y * v, data)
            assert float(found["loss"].sel(split="own", x_index=i, y_index=j)) == pytest.approx(loss, rel=1e-10)
    losses = [plain(run.model, one, data)[0] for one in (*points, run.point(4))]
    np.testing.assert_allclose(found["model_loss"].sel(split="own"), losses, rtol=1e-10)


def test_chosen_clients_of_every_round_of_every_run(runs: list[Run], tmp_path: Path) -> None:
    found = ask("plane", runs, tmp_path, rounds="2,4", steps=2)
    assert found["plane"].values.tolist() == [0, 1, 2, 3]
    for number, (run, round) in enumerate((run, round) for run in runs for round in (2, 4)):
        assert {one[:2] for one in origin(found.sel(plane=number))} == {(run.name, round)}
    clients = sorted(runs[0].local_points(2), reverse=True)
    chosen = ask("plane", [runs[0]], tmp_path, rounds="2", steps=2, clients=tuple(clients))
    assert chosen["model_client"].sel(plane=0).values.tolist() == [*clients, -1]


def test_three_runs(runs: list[Run], make_run: Callable[..., Run], tmp_path: Path) -> None:
    three = [*runs, make_run(algorithm={"name": "fedprox", "mu": 1.0})]
    found = ask("plane", three, tmp_path, models="runs", steps=3, margin=0.0).sel(plane=0)
    assert origin(found) == [(run.name, 4, -1) for run in three]
    check_cells(three[0], found, [run.point(4) for run in three])
    with pytest.raises(ValueError, match="a plane through three runs, got 2: name three"):
        ask("plane", runs, tmp_path, models="runs")
    with pytest.raises(ValueError, match=r"equal to rounding.*a = .*\(1\) round 4"):
        ask("plane", [runs[0], runs[0], runs[1]], tmp_path, models="runs")


def test_three_rounds(run: Run, tmp_path: Path) -> None:
    found = ask("plane", [run], tmp_path, models="rounds", rounds="all", steps=3).sel(plane=0)
    assert origin(found) == [(run.name, round, -1) for round in (0, 2, 4)]
    check_cells(run, found, [run.point(round) for round in (0, 2, 4)])
    with pytest.raises(ValueError, match=r'needs three rounds, got 1; .* rounds = "all". There are 0, 2, 4'):
        ask("plane", [run], tmp_path, models="rounds")


def test_models_that_span_no_plane(run: Run, make_run: Callable[..., Run], tmp_path: Path) -> None:
    a, b = flat(normed(0)), flat(normed(1))
    for points, message in (([a, a, b], "a and b are equal"), ([a, b, 0.5 * (a + b)], "lie on one line")):
        with pytest.raises(ValueError, match=rf"{message}.*c = mine round 2\)"):
            plan("plane", [several(tmp_path, points)], tmp_path, models="rounds", rounds="all")  # before any work
    other = make_run(model={"name": "mlp", "hidden": [3]})
    with pytest.raises(ValueError, match=r"models must be of one architecture, but '.*' has shape .* in .* and"):
        ask("plane", [run, run, other], tmp_path, models="runs")
    absent = next(k for k in run.clients if k not in run.local_points(4))
    present = sorted(run.local_points(4))
    with pytest.raises(ValueError, match=rf"{absent} did not take part; there are {present[0]}, "):
        ask("plane", [run], tmp_path, clients=(present[0], present[1], absent))
    with pytest.raises(ValueError, match="a single model has no clients"):
        ask("plane", [several(tmp_path, [a, b])], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("batchnorm", get_args(plane.Policy))
def test_norm_layers(tmp_path: Path, batchnorm: str) -> None:
    points = [flat(normed(seed)) for seed in range(3)]
    subject = several(tmp_path, points)
    settings: dict[str, Any] = {"models": "rounds", "rounds": "all", "batchnorm": batchnorm, "steps": 3}
    found = ask("plane", [subject], tmp_path, **settings).sel(plane=0)
    assert str(found["batchnorm"].values) == batchnorm
    weights = sum(p.numel() for p in subject.model.parameters())
    place = np.stack([found["model_x"], found["model_y"]], axis=1)
    assert place[1, 0] == pytest.approx(float((points[1] - points[0])[:weights].norm()))  # of weights alone
    solved = np.linalg.inv(np.vstack([place.T, np.ones(3)]))  # barycentric coordinates of any place

    def at(x: float, y: float) -> Tensor:
        shares = solved @ np.array([x, y, 1.0])
        theta = sum(float(share) * point for share, point in zip(shares, points, strict=True))
        assert isinstance(theta, Tensor)
        if batchnorm == "recomputed":
            first = theta[:15].view(5, 3), theta[15:20]
            hidden = functional.linear(subject.examples("train")[0], *first)  # training data, for the test loss too
            theta = torch.cat([theta[:weights], hidden.mean(dim=0), hidden.var(dim=0)])
        return theta

    for split in ("train", "test"):
        data, of_split = subject.examples(split), found.sel(split=split)
        for model in range(3):
            expected, _ = plain(subject.model, at(*place[model]), data)
            assert float(of_split["model_loss"][model]) == pytest.approx(expected, rel=1e-9)
        for i, j in ((0, 0), (1, 2), (2, 1)):
            cell = of_split.sel(x_index=i, y_index=j)
            expected, error = plain(subject.model, at(float(cell["x"]), float(cell["y"])), data)
            assert float(cell["loss"]) == pytest.approx(expected, rel=1e-9, nan_ok=True)
            assert float(cell["error"]) == pytest.approx(error, abs=1e-12)


def test_interrupted_and_with_two_workers_it_is_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = ask_all("plane", [run], tmp_path / "straight", steps=4)
    assert_same(straight, ask_all("plane", [Run(run.path, limits=Limits(workers=2))], tmp_path / "two", steps=4))
    monkeypatch.setattr(grids, "AT_ONCE", 1)  # every row a piece
    real, asked = plane.measure_rows, []

    def stop(*given: Any) -> Any:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(plane, "measure_rows", stop)
    with pytest.raises(KeyboardInterrupt):
        ask("plane", [run], tmp_path / "broken", steps=4)
    assert plan("plane", [run], tmp_path / "broken", steps=4).done == 3  # the models, and two rows
    assert_same(straight, ask_all("plane", [run], tmp_path / "broken", steps=4))
    assert len(asked) == 3 + 2 + 4


def test_xarray_reads_it_with_every_axis_named(run: Run, tmp_path: Path) -> None:
    check_reading("plane", run, tmp_path, steps=3)
    found = ask("plane", [run], tmp_path, steps=3)
    assert found["loss"].dims == ("plane", "split", "x_index", "y_index")
    assert found["model_loss"].dims == ("plane", "split", "model")
    assert {str(dim) for dim in found.dims} == {"plane", "split", "x_index", "y_index", "model"}
    drawn = found["loss"].sel(plane=0, split="test").plot.contourf(x="x", y="y")  # a picture in one line
    assert np.isclose(drawn.axes.get_xlim(), found["x"].sel(plane=0)[[0, -1]]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": "client"}, "models must be 'clients', 'runs' or 'rounds'"),
        ({"clients": (1, 2)}, "clients must name three different ones"),
        ({"clients": (1, 2, 2)}, "clients must name three different ones"),
        ({"margin": -0.1}, "margin must be at least 0, got -0.1"),
        ({"batchnorm": "frozen"}, "batchnorm must be 'interpolated' or 'recomputed'"),
        ({"steps": 0}, "steps must be at least 2, got 0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(plane.Settings, settings, "study plane")
