"""Lines between models against plain loops, barriers against their definitions on a fine grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor
from torch.nn import functional

from analysis.studies import interpolation
from analysis.subjects import Limits, Run
from landscape.geometry.paths import list_beyond
from tests.analysis.helpers import ask, ask_all, assert_same, check_reading, plan
from tests.analysis.studies.test_plane import flat, several
from tests.analysis.studies.test_surface import normed, plain
from training.settings import build


def named(found: xr.Dataset) -> list[tuple[object, ...]]:
    """Kind of every pair, then run, round and client of both ends."""
    names = ("kind", *(f"{end}_{name}" for end in ("start", "end") for name in ("run", "round", "client")))
    return list(zip(*(found[name].values.tolist() for name in names), strict=True))


def test_a_line_between_two_runs_cell_by_cell(runs: list[Run], tmp_path: Path) -> None:
    found = ask("interpolation", runs, tmp_path, pairs=("run-run",), steps=3)
    assert named(found) == [("run-run", runs[0].name, 4, -1, runs[1].name, 4, -1)]
    assert found["batchnorm"].values.tolist() == ["frozen"]  # no norm layer: nothing to choose
    assert found["x"].values.tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0]
    start, end = (run.point(4) for run in runs)
    assert float(found["distance"].sel(pair=0)) == pytest.approx(float((end - start).norm()))
    for split in ("train", "test"):
        data, line = runs[0].examples(split), found.sel(pair=0, batchnorm="frozen", split=split)
        for x in found["x"].values:
            loss, error = plain(runs[0].model, (1 - x) * start + x * end, data)
            assert float(line["loss"].sel(x=x)) == pytest.approx(loss, rel=1e-12)
            assert float(line["error"].sel(x=x)) == pytest.approx(error, abs=1e-12)
        objective = runs[0].objective(split)
        assert float(line["loss"].sel(x=0.0)) == objective.loss(start)  # both ends to the bit
        assert float(line["loss"].sel(x=1.0)) == objective.loss(end)
    assert found["standard_error"].isnull().all()


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
    found = ask("interpolation", [model], tmp_path, steps=9, **settings)
    start, end = model.points
    assert found["definition"].values.tolist() == ["linear", "mean", "max"]
    for split in ("train", "test"):
        data, line = model.examples(split), found.sel(pair=0, batchnorm="interpolated", split=split)
        x = np.linspace(0, 1, 301)
        fine = np.array([plain(model.model, (1 - g) * start + g * end, data)[0] for g in x])
        chord = fine - ((1 - x) * fine[0] + x * fine[-1])
        expected = [chord.max(), fine.max() - (fine[0] + fine[-1]) / 2, fine.max() - max(fine[0], fine[-1])]
        # eight golden-section steps leave 0.25 * 0.62^7 = 0.009 of the bracket between two grid points
        np.testing.assert_allclose(line["loss_barrier"], expected, atol=1e-3)
        linear, mean, largest = line["loss_where"].values
        assert linear == pytest.approx(x[chord.argmax()], abs=0.01)
        assert mean == largest == pytest.approx(x[fine.argmax()], abs=0.01)
        between = line.sel(x=slice(0, 1))
        seen = np.concatenate([between["x"], line["refined_x"]])
        error = np.concatenate([between["error"], line["refined_error"]])
        kept = np.isfinite(seen)
        seen, error = seen[kept], error[kept]
        first, last = error[0], error[between.sizes["x"] - 1]
        excess = error - ((1 - seen) * first + seen * last)
        wanted = [excess.max(), error.max() - (first + last) / 2, error.max() - max(first, last)]
        np.testing.assert_allclose(line["error_barrier"], wanted, atol=1e-12)
        assert np.diff(np.sort(line["loss_barrier"])).min() > 0.01  # three numbers, told apart


def test_every_kind_of_pair_and_each_edge_once(runs: list[Run], tmp_path: Path) -> None:
    found = ask("interpolation", runs, tmp_path, steps=3, low=0.0, high=1.0, clients=2, splits=("train",))
    assert found["x"].values.tolist() == [0.0, 0.5, 1.0]
    ends = [(run.name, 4, -1) for run in runs]
    expected: list[tuple[object, ...]] = [("run-run", *ends[0], *ends[1])]
    for run, ours in zip(runs, ends, strict=True):
        one, two = ((run.name, 4, client) for client in sorted(run.local_points(4))[:2])
        expected += [
            ("round-round", run.name, 2, -1, *ours),
            ("client-client", *one, *two),
            ("client-global", *one, *ours),
            ("client-global", *two, *ours),
        ]
    assert named(found) == expected
    client = sorted(runs[1].local_points(4))[1]
    middle = 0.5 * (runs[1].local_points(4)[client] + runs[1].point(4))
    loss = found["loss"].isel(pair=-1, batchnorm=0).sel(split="train", x=0.5)
    assert float(loss) == pytest.approx(plain(runs[1].model, middle, runs[1].examples("train"))[0])

    pairs = ("client-client", "round-round")
    three = ask("interpolation", [runs[0]], tmp_path, rounds="2,4", pairs=pairs, steps=3, splits=("test",))
    edges = named(three)
    assert len(edges) == 2 * 3 + 1
    assert len({frozenset((edge[1:4], edge[4:])) for edge in edges}) == len(edges)


@pytest.mark.parametrize(
    ("low", "high", "before", "beyond"), [(-1.0, 2.0, 20, 20), (-0.25, 1.0, 5, 0), (0.0, 1.52, 0, 10), (0.0, 1.0, 0, 0)]
)
def test_the_spacing_beyond_the_models(low: float, high: float, before: int, beyond: int) -> None:
    x = list_beyond(low, high, 21)
    assert len(x) == before + beyond
    whole = np.sort(np.concatenate([x, np.linspace(0, 1, 21)]))
    assert whole[0] == low
    assert whole[-1] == high
    np.testing.assert_allclose(np.diff(whole), 0.05, rtol=0.05)


def test_norm_layers_under_three_policies(tmp_path: Path) -> None:
    model = several(tmp_path, [flat(normed(0)), flat(normed(3))])
    found = ask("interpolation", [model], tmp_path, rounds="all", steps=3).sel(pair=0)
    assert found["batchnorm"].values.tolist() == ["interpolated", "recomputed", "frozen"]
    start, end = model.points
    weights = sum(p.numel() for p in model.model.parameters())
    assert float(found["distance"]) == pytest.approx(float((end - start)[:weights].norm()))

    def at(policy: str, x: float) -> Tensor:
        theta = (1 - x) * start + x * end
        if policy == "frozen":
            theta[weights:] = start[weights:]
        if policy == "recomputed":  # from training data, for the test loss too
            hidden = functional.linear(model.examples("train")[0], theta[:15].view(5, 3), theta[15:20])
            theta[weights:] = torch.cat([hidden.mean(dim=0), hidden.var(dim=0)])
        return theta

    for policy in found["batchnorm"].values.tolist():
        for split in ("train", "test"):
            for x in found["x"].values:
                loss, error = plain(model.model, at(policy, float(x)), model.examples(split))
                cell = found.sel(batchnorm=policy, split=split, x=x)
                assert float(cell["loss"]) == pytest.approx(loss, rel=1e-9, nan_ok=True), (policy, split, x)
                assert float(cell["error"]) == pytest.approx(error, abs=1e-12)
    ends = found["loss"].sel(split="test", x=1.0)
    assert float(ends.sel(batchnorm="interpolated")) == model.objective("test").loss(end)
    assert len(set(ends.values.tolist())) == 3  # the policies do differ


def test_a_subset_has_a_standard_error(run: Run, tmp_path: Path) -> None:
    found = ask("interpolation", [run], tmp_path, steps=3, pairs=("round-round",), limit=150)
    assert (found["standard_error"] > 0).all()
    assert found["examples"].values.tolist() == [[[150, 150]]]


def test_interrupted_and_with_two_workers_it_is_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"rounds": "2,4", "steps": 4, "clients": 2, "splits": ("test",)}
    straight = ask_all("interpolation", [run], tmp_path / "straight", **settings)
    assert_same(
        straight, ask_all("interpolation", [Run(run.path, limits=Limits(workers=2))], tmp_path / "two", **settings)
    )
    real, asked = interpolation.barrier, []

    def stop(*given: Any, **more: Any) -> Any:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(*given, **more)

    monkeypatch.setattr(interpolation, "barrier", stop)
    with pytest.raises(KeyboardInterrupt):
        ask("interpolation", [run], tmp_path / "broken", **settings)
    assert plan("interpolation", [run], tmp_path / "broken", **settings).done == 2
    assert_same(straight, ask_all("interpolation", [run], tmp_path / "broken", **settings))
    assert len(asked) == 3 + straight.data.sizes["pair"] - 2


def test_xarray_reads_it_with_every_axis_named(run: Run, tmp_path: Path) -> None:
    check_reading("interpolation", run, tmp_path, steps=3)
    found = ask("interpolation", [run], tmp_path, steps=3)
    assert found["loss"].dims == ("pair", "batchnorm", "split", "x")
    assert found["loss_barrier"].sel(split="test", definition="linear", batchnorm="frozen").dims == ("pair",)
    assert {str(dim) for dim in found.dims} == {"pair", "batchnorm", "split", "x", "definition", "refinement"}


def test_the_answer_depends_on_the_checkpoint_before(run: Run) -> None:
    both = interpolation.STUDY.rounds(run, interpolation.Settings())
    assert both == [2, 4]
    assert interpolation.STUDY.rounds(run, interpolation.Settings(pairs=("client-client",))) == [4]
    assert interpolation.STUDY.rounds(run, interpolation.Settings(rounds="0")) == [0]


def test_what_is_not_there_is_said(run: Run, make_run: Callable[..., Run], tmp_path: Path) -> None:
    lone = several(tmp_path, [flat(normed())])
    with pytest.raises(ValueError, match=r"there is no pair of run-run or client-client or .* here: give several runs"):
        ask("interpolation", [lone], tmp_path)
    with pytest.raises(ValueError, match="a single model has no clients"):
        ask("interpolation", [lone], tmp_path, pairs=("client-global",))
    with pytest.raises(ValueError, match="round 0 keeps no local models; rounds that do: 2, 4"):
        ask("interpolation", [run], tmp_path, pairs=("client-client",), rounds="0")
    other = make_run(model={"name": "mlp", "hidden": [3]})
    with pytest.raises(ValueError, match=r"models must be of one architecture, but '.*' has shape"):
        ask("interpolation", [run, other], tmp_path)
    sparse = make_run(checkpoints={"every": 4, "keep_locals": "all"})
    with pytest.raises(ValueError, match=r"runs have different rounds \(.*\[0, 2, 4\]; .*\[0, 4\]\): write those"):
        ask("interpolation", [run, sparse], tmp_path, rounds="all")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": ("run-runs",)}, "did you mean 'run-run'"),
        ({"pairs": "run-run"}, "pairs must be a list, got"),
        ({"batchnorm": ("batch",)}, "batchnorm: unknown 'batch'. Known: frozen, interpolated, recomputed"),
        ({"batchnorm": ()}, "batchnorm must be a list"),
        ({"low": 0.1}, "low must be at most 0 and high at least 1, both finite; got 0.1"),
        ({"high": float("inf")}, "high must be finite"),
        ({"steps": 2}, "steps must be at least 3, got 2"),
        ({"clients": 0}, "clients must be at least 1, got 0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(interpolation.Settings, settings, "study interpolation")
