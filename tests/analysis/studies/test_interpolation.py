"""Lines between models against plain loops, barriers against their definitions on a fine grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor
from torch.nn import functional

from analysis import runner, store
from analysis.store import Stored, Table
from analysis.studies import interpolation
from analysis.subjects import Limits, Run
from tests.analysis.studies.test_plane import flat, several
from tests.analysis.studies.test_surface import assert_same, normed, plain


def go(subjects: list[Any], out: Path, **settings: Any) -> Stored:
    planned = runner.plan(interpolation.STUDY, interpolation.Settings(**settings), subjects, out)
    return store.read(runner.carry_out(planned, say=lambda _: None))


def named(table: Table) -> list[tuple[str, str, str]]:
    return list(zip(table["kind"].tolist(), table["start"].tolist(), table["end"].tolist(), strict=True))


def test_a_line_between_two_runs_cell_by_cell(runs: list[Run], tmp_path: Path) -> None:
    table = go(runs, tmp_path, pairs=("run-run",), steps=3).tables["lines"]
    names = [f"{run.name} round 4" for run in runs]
    assert named(table) == [("run-run", *names)]
    assert table["batchnorm"].tolist() == ["frozen"]  # no norm layer: nothing to choose
    assert table["x"].tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0]
    start, end = (run.point(4) for run in runs)
    assert table["distance"][0] == pytest.approx(float((end - start).norm()))
    for k, split in enumerate(("train", "test")):
        data = runs[0].examples(split)
        for i, x in enumerate(table["x"]):
            loss, error = plain(runs[0].model, (1 - x) * start + x * end, data)
            assert table["loss"][0, k, i] == pytest.approx(loss, rel=1e-12)
            assert table["error"][0, k, i] == pytest.approx(error, abs=1e-12)
        objective = runs[0].objective(split)
        assert table["loss"][0, k, 2] == objective.loss(start)  # both ends to the bit
        assert table["loss"][0, k, 4] == objective.loss(end)
    assert np.isnan(table["standard_error"]).all()


def test_barriers_by_their_definitions_on_a_fine_grid(tmp_path: Path) -> None:
    net, mirrored = normed(0), normed(0)
    with torch.no_grad():
        net[3].weight *= 8
        for tensor, source in zip([*mirrored.parameters()], [*net.parameters()], strict=True):
            tensor.copy_(source.flip(-1) if tensor.shape == (3, 5) else source if len(tensor) == 3 else source.flip(0))
        for buffer, source in zip([*mirrored.buffers()], [*net.buffers()], strict=True):
            buffer.copy_(source.flip(0) if source.ndim else source)
        mirrored[3].weight *= 0.5
    model = several(tmp_path, [flat(net), flat(mirrored)])  # hidden units in another order, outputs less decided
    model.data = {split: (inputs, net(inputs).argmax(dim=1)) for split, (inputs, _) in model.data.items()}
    settings: dict[str, Any] = {"pairs": ("round-round",), "rounds": "all", "batchnorm": ("interpolated",)}
    table = go([model], tmp_path, steps=9, **settings).tables["lines"]
    start, end = model.points
    assert table["definition"].tolist() == ["linear", "mean", "max"]
    for k, split in enumerate(("train", "test")):
        data = model.examples(split)
        x = np.linspace(0, 1, 301)
        fine = np.array([plain(model.model, (1 - g) * start + g * end, data)[0] for g in x])
        chord = fine - ((1 - x) * fine[0] + x * fine[-1])
        expected = [chord.max(), fine.max() - (fine[0] + fine[-1]) / 2, fine.max() - max(fine[0], fine[-1])]
        # eight golden-section steps leave 0.25 * 0.62^7 = 0.009 of the bracket between two grid points
        np.testing.assert_allclose(table["loss_barrier"][0, k], expected, atol=1e-3)
        assert table["loss_where"][0, k, 0] == pytest.approx(x[chord.argmax()], abs=0.01)
        assert table["loss_where"][0, k, 1] == table["loss_where"][0, k, 2] == pytest.approx(x[fine.argmax()], abs=0.01)
        inside = (table["x"] >= 0) & (table["x"] <= 1)
        seen = np.concatenate([table["x"][inside], table["refined_x"][0, k]])
        error = np.concatenate([table["error"][0, k][inside], table["refined_error"][0, k]])
        kept = np.isfinite(seen)
        seen, error = seen[kept], error[kept]
        first, last = error[0], error[inside.sum() - 1]
        excess = error - ((1 - seen) * first + seen * last)
        wanted = [excess.max(), error.max() - (first + last) / 2, error.max() - max(first, last)]
        np.testing.assert_allclose(table["error_barrier"][0, k], wanted, atol=1e-12)
        assert np.diff(np.sort(table["loss_barrier"][0, k])).min() > 0.01  # three numbers, told apart


def test_every_kind_of_pair_and_each_edge_once(runs: list[Run], tmp_path: Path) -> None:
    table = go(runs, tmp_path, steps=3, low=0.0, high=1.0, clients=2, splits=("train",)).tables["lines"]
    assert table["x"].tolist() == [0.0, 0.5, 1.0]
    expected = [("run-run", f"{runs[0].name} round 4", f"{runs[1].name} round 4")]
    for run in runs:
        ours = f"{run.name} round 4"
        one, two = (f"{ours} client {client}" for client in sorted(run.local_points(4))[:2])
        expected += [
            ("round-round", f"{run.name} round 2", ours),
            ("client-client", one, two),
            ("client-global", one, ours),
            ("client-global", two, ours),
        ]
    assert named(table) == expected
    client = sorted(runs[1].local_points(4))[1]
    middle = 0.5 * (runs[1].local_points(4)[client] + runs[1].point(4))
    assert table["loss"][-1, 0, 1] == pytest.approx(plain(runs[1].model, middle, runs[1].examples("train"))[0])

    three = go([runs[0]], tmp_path, rounds="2,4", pairs=("client-client", "round-round"), steps=3, splits=("test",))
    edges = named(three.tables["lines"])
    assert len(edges) == 2 * 3 + 1
    assert len({frozenset(edge[1:]) for edge in edges}) == len(edges)


@pytest.mark.parametrize(
    ("low", "high", "before", "beyond"), [(-1.0, 2.0, 20, 20), (-0.25, 1.0, 5, 0), (0.0, 1.52, 0, 10), (0.0, 1.0, 0, 0)]
)
def test_the_spacing_beyond_the_models(low: float, high: float, before: int, beyond: int) -> None:
    settings = interpolation.Settings(low=low, high=high)
    x = interpolation.outside(settings)
    assert len(x) == before + beyond
    whole = np.sort(np.concatenate([x, np.linspace(0, 1, 21)]))
    assert whole[0] == low
    assert whole[-1] == high
    np.testing.assert_allclose(np.diff(whole), 0.05, rtol=0.05)


def test_norm_layers_under_three_policies(tmp_path: Path) -> None:
    model = several(tmp_path, [flat(normed(0)), flat(normed(3))])
    table = go([model], tmp_path, rounds="all", steps=3).tables["lines"]
    assert table["batchnorm"].tolist() == ["interpolated", "recomputed", "frozen"]
    start, end = model.points
    weights = sum(p.numel() for p in model.model.parameters())
    assert table["distance"].tolist() == pytest.approx(3 * [float((end - start)[:weights].norm())])

    def at(policy: str, x: float) -> Tensor:
        theta = (1 - x) * start + x * end
        if policy == "frozen":
            theta[weights:] = start[weights:]
        if policy == "recomputed":  # from training data, for the test loss too
            hidden = functional.linear(model.examples("train")[0], theta[:15].view(5, 3), theta[15:20])
            theta[weights:] = torch.cat([hidden.mean(dim=0), hidden.var(dim=0)])
        return theta

    for row, policy in enumerate(table["batchnorm"]):
        for k, split in enumerate(("train", "test")):
            for i, x in enumerate(table["x"]):
                loss, error = plain(model.model, at(policy, float(x)), model.examples(split))
                assert table["loss"][row, k, i] == pytest.approx(loss, rel=1e-9, nan_ok=True), (policy, split, x)
                assert table["error"][row, k, i] == pytest.approx(error, abs=1e-12)
    ends = table["x"] == 1.0
    assert table["loss"][0, 1, ends] == model.objective("test").loss(end)
    assert len({float(loss) for loss in table["loss"][:, 1, ends].ravel()}) == 3  # the policies do differ


def test_a_subset_has_a_standard_error(run: Run, tmp_path: Path) -> None:
    table = go([run], tmp_path, steps=3, pairs=("round-round",), limit=150).tables["lines"]
    assert (table["standard_error"] > 0).all()
    assert table["examples"].tolist() == [[150, 150]]


def test_interrupted_and_with_two_workers_it_is_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"rounds": "2,4", "steps": 4, "clients": 2, "splits": ("test",)}
    straight = go([run], tmp_path / "straight", **settings)
    assert_same(straight, go([Run(run.path, limits=Limits(workers=2))], tmp_path / "two", **settings))
    real, asked = interpolation.barrier, []

    def stop(*given: Any, **more: Any) -> Any:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(*given, **more)

    monkeypatch.setattr(interpolation, "barrier", stop)
    with pytest.raises(KeyboardInterrupt):
        go([run], tmp_path / "broken", **settings)
    assert runner.plan(interpolation.STUDY, interpolation.Settings(**settings), [run], tmp_path / "broken").done == 2
    assert_same(straight, go([run], tmp_path / "broken", **settings))
    assert len(asked) == 3 + len(straight.tables["lines"]["kind"]) - 2


def test_xarray_reads_it_with_every_axis_named(run: Run, tmp_path: Path) -> None:
    go([run], tmp_path, steps=3)
    with xarray.open_dataset(tmp_path / "interpolation.h5", group="lines", engine="h5netcdf") as found:
        assert found["loss"].dims == ("row", "split", "x")
        assert found["loss_barrier"].sel(split="test", definition="linear").dims == ("row",)
        assert {str(dim) for dim in found.dims} == {"row", "split", "x", "definition", "refinement"}
        assert all(one.attrs["long_name"] and one.attrs["units"] for one in found.variables.values())


def test_the_answer_depends_on_the_checkpoint_before(run: Run) -> None:
    both = interpolation.STUDY.rounds(run, interpolation.Settings())
    assert both == [2, 4]
    assert interpolation.STUDY.rounds(run, interpolation.Settings(pairs=("client-client",))) == [4]
    assert interpolation.STUDY.rounds(run, interpolation.Settings(rounds="0")) == [0]


def test_what_is_not_there_is_said(run: Run, make_run: Callable[..., Run], tmp_path: Path) -> None:
    lone = several(tmp_path, [flat(normed())])
    with pytest.raises(ValueError, match=r"there is no pair of run-run or client-client or .* here: give several runs"):
        go([lone], tmp_path)
    with pytest.raises(ValueError, match="a single model has no clients"):
        go([lone], tmp_path, pairs=("client-global",))
    with pytest.raises(ValueError, match="round 0 keeps no local models; rounds that do: 2, 4"):
        go([run], tmp_path, pairs=("client-client",), rounds="0")
    other = make_run(model={"name": "mlp", "hidden": [3]})
    with pytest.raises(ValueError, match=r"models must be of one architecture, but '.*' has shape"):
        go([run, other], tmp_path)
    sparse = make_run(checkpoints={"every": 4, "keep_locals": "all"})
    with pytest.raises(ValueError, match=r"runs have different rounds \(.*\[0, 2, 4\]; .*\[0, 4\]\): write those"):
        go([run, sparse], tmp_path, rounds="all")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": ("run-runs",)}, "did you mean 'run-run'"),
        ({"pairs": "run-run"}, "pairs must be a list of some of run-run"),
        ({"batchnorm": ("batch",)}, "Known: frozen, interpolated, recomputed"),
        ({"batchnorm": ()}, "batchnorm must be a list"),
        ({"low": 0.1}, "low must be at most 0 and high at least 1, got 0.1"),
        ({"high": float("inf")}, "low must be at most 0"),
        ({"steps": 2}, "steps must be a whole number, at least 3"),
        ({"clients": 0}, "clients must be a whole number, at least 1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interpolation.Settings(**settings)
