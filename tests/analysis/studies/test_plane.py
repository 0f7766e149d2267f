"""Planes through three models: positions in closed form, every cell against a plain loop, refusals in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor, nn
from torch.nn import functional

from analysis import runner, store
from analysis.shared import grids
from analysis.store import Stored, Table
from analysis.studies import plane
from analysis.subjects import Limits, Own, Run
from tests.analysis.studies.test_surface import assert_same, normed, plain


def go(subjects: list[Any], out: Path, **settings: Any) -> Stored:
    planned = runner.plan(plane.STUDY, plane.Settings(**settings), subjects, out)
    return store.read(runner.carry_out(planned, say=lambda _: None))


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


def check_cells(run: Run, table: Table, points: list[Tensor]) -> None:
    u, v = frame_by_hand(*points)
    for k, split in enumerate(table["split"]):
        for i, x in enumerate(table["x"]):
            for j, y in enumerate(table["y"]):
                loss, error = plain(run.model, points[0] + x * u + y * v, run.examples(split))
                assert table["loss"][k, i, j] == pytest.approx(loss, rel=1e-10)
                assert table["error"][k, i, j] == pytest.approx(error, abs=1e-12)


def test_three_clients_and_the_global_model(run: Run, tmp_path: Path) -> None:
    table = go([run], tmp_path, steps=4).tables["plane_0"]
    clients = sorted(run.local_points(4))
    points = [run.local_points(4)[client] for client in clients]
    names = [f"{run.name} round 4 client {client}" for client in clients]
    assert table["label"].tolist() == [*names, f"{run.name} round 4"]
    place = np.stack([table["model_x"], table["model_y"]], axis=1)
    assert place[0].tolist() == [0.0, 0.0]
    assert place[1, 1] == 0.0
    assert place[2, 1] > 0
    for i in range(3):  # the picture is not sheared: distances in it are distances of weights
        for j in range(i):
            distance = float((points[i] - points[j]).norm())
            assert np.linalg.norm(place[i] - place[j]) == pytest.approx(distance, rel=1e-12)
    assert table["distance"][:3].tolist() == [0.0, 0.0, 0.0]
    off = table["distance"][3]
    assert off**2 + (place[3] ** 2).sum() == pytest.approx(float((run.point(4) - points[0]).norm()) ** 2)
    for k, split in enumerate(("train", "test")):
        for m, theta in enumerate([*points, run.point(4)]):
            loss, error = plain(run.model, theta, run.examples(split))
            assert table["model_loss"][k, m] == pytest.approx(loss, rel=1e-12)
            assert table["model_error"][k, m] == pytest.approx(error, abs=1e-12)
    assert table["examples"].tolist() == [len(run.examples(split)[1]) for split in ("train", "test")]
    corners = place[:3]
    rim = 0.2 * (corners.max(axis=0) - corners.min(axis=0))
    low, high = corners.min(axis=0) - rim, corners.max(axis=0) + rim
    np.testing.assert_allclose([table["x"][0], table["y"][0]], low)
    np.testing.assert_allclose([table["x"][-1], table["y"][-1]], high)
    check_cells(run, table, points)


def test_chosen_clients_of_every_round_of_every_run(runs: list[Run], tmp_path: Path) -> None:
    both = [runs[0], runs[1]]
    result = go(both, tmp_path, rounds="2,4", steps=2)
    assert list(result.tables) == ["plane_0", "plane_1", "plane_2", "plane_3"]
    attributes = [table.attributes for table in result.tables.values()]
    assert [(one["run"], one["round"]) for one in attributes] == [(r.name, n) for r in runs for n in (2, 4)]
    clients = sorted(runs[0].local_points(2), reverse=True)
    chosen = go([runs[0]], tmp_path, rounds="2", steps=2, clients=tuple(clients))
    assert [label.rpartition(" ")[2] for label in chosen.tables["plane_0"]["label"][:3]] == [str(k) for k in clients]


def test_three_runs(runs: list[Run], make_run: Callable[..., Run], tmp_path: Path) -> None:
    three = [*runs, make_run(algorithm={"name": "fedprox", "mu": 1.0})]
    table = go(three, tmp_path, models="runs", steps=3, margin=0.0).tables["plane_0"]
    assert table["label"].tolist() == [f"{run.name} round 4" for run in three]
    check_cells(three[0], table, [run.point(4) for run in three])
    with pytest.raises(ValueError, match="a plane through three runs, got 2: name three"):
        go(runs, tmp_path, models="runs")
    with pytest.raises(ValueError, match=r"equal to rounding.*a = .*\(1\) round 4"):
        go([runs[0], runs[0], runs[1]], tmp_path, models="runs")


def test_three_rounds(run: Run, tmp_path: Path) -> None:
    table = go([run], tmp_path, models="rounds", rounds="all", steps=3).tables["plane_0"]
    assert table["label"].tolist() == [f"{run.name} round {round}" for round in (0, 2, 4)]
    check_cells(run, table, [run.point(round) for round in (0, 2, 4)])
    with pytest.raises(ValueError, match=r'needs three rounds, got 1; .* rounds = "all". There are 0, 2, 4'):
        go([run], tmp_path, models="rounds")


def test_models_that_span_no_plane(run: Run, make_run: Callable[..., Run], tmp_path: Path) -> None:
    a, b = flat(normed(0)), flat(normed(1))
    for points, message in (([a, a, b], "a and b are equal"), ([a, b, 0.5 * (a + b)], "lie on one line")):
        with pytest.raises(ValueError, match=rf"{message}.*c = mine round 2\)"):
            runner.plan(  # before any work is done
                plane.STUDY, plane.Settings(models="rounds", rounds="all"), [several(tmp_path, points)], tmp_path
            )
    other = make_run(model={"name": "mlp", "hidden": [3]})
    with pytest.raises(ValueError, match=r"models must be of one architecture, but '.*' has shape .* in .* and"):
        go([run, run, other], tmp_path, models="runs")
    absent = next(k for k in run.clients if k not in run.local_points(4))
    present = sorted(run.local_points(4))
    with pytest.raises(ValueError, match=rf"{absent} did not take part; there are {present[0]}, "):
        go([run], tmp_path, clients=(present[0], present[1], absent))
    with pytest.raises(ValueError, match="a single model has no clients"):
        go([several(tmp_path, [a, b])], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("batchnorm", plane.POLICIES)
def test_norm_layers(tmp_path: Path, batchnorm: str) -> None:
    points = [flat(normed(seed)) for seed in range(3)]
    subject = several(tmp_path, points)
    settings: dict[str, Any] = {"models": "rounds", "rounds": "all", "batchnorm": batchnorm, "steps": 3}
    table = go([subject], tmp_path, **settings).tables["plane_0"]
    assert table.attributes["batchnorm"] == batchnorm
    weights = sum(p.numel() for p in subject.model.parameters())
    place = np.stack([table["model_x"], table["model_y"]], axis=1)
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

    for k, split in enumerate(("train", "test")):
        data = subject.examples(split)
        for m in range(3):
            assert table["model_loss"][k, m] == pytest.approx(plain(subject.model, at(*place[m]), data)[0], rel=1e-9)
        for i, j in ((0, 0), (1, 2), (2, 1)):
            expected, error = plain(subject.model, at(table["x"][i], table["y"][j]), data)
            assert table["loss"][k, i, j] == pytest.approx(expected, rel=1e-9, nan_ok=True)
            assert table["error"][k, i, j] == pytest.approx(error, abs=1e-12)


def test_interrupted_and_with_two_workers_it_is_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = go([run], tmp_path / "straight", steps=4)
    assert_same(straight, go([Run(run.path, limits=Limits(workers=2))], tmp_path / "two", steps=4))
    monkeypatch.setattr(grids, "AT_ONCE", 1)  # every row a piece
    real, asked = plane.measure_rows, []

    def stop(*given: Any) -> Any:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(plane, "measure_rows", stop)
    with pytest.raises(KeyboardInterrupt):
        go([run], tmp_path / "broken", steps=4)
    planned = runner.plan(plane.STUDY, plane.Settings(steps=4), [run], tmp_path / "broken")
    assert planned.done == 3  # the models, and two rows
    assert_same(straight, go([run], tmp_path / "broken", steps=4))
    assert len(asked) == 3 + 2 + 4


def test_xarray_reads_it_with_every_axis_named(run: Run, tmp_path: Path) -> None:
    go([run], tmp_path, steps=3)
    with xarray.open_dataset(tmp_path / "plane.h5", group="plane_0", engine="h5netcdf") as found:
        assert found["loss"].dims == ("split", "x", "y")
        assert found["model_loss"].dims == ("split", "model")
        assert {str(dim) for dim in found.dims} == {"split", "x", "y", "model"}
        assert all(one.attrs["long_name"] and one.attrs["units"] for one in found.variables.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": "client"}, "did you mean 'clients'"),
        ({"clients": (1, 2)}, "clients must name three different ones"),
        ({"clients": (1, 2, 2)}, "clients must name three different ones"),
        ({"margin": -0.1}, "margin must be zero or a positive"),
        ({"batchnorm": "frozen"}, "Known: interpolated, recomputed"),
        ({"steps": 0}, "steps must be a whole number"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plane.Settings(**settings)
