"""Layer by layer against tensors cut out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.studies import sensitivity
from analysis.subjects import Run
from tests.analysis.helpers import ask, check_interruption, check_reading, gradient_at, loss_at
from training.settings import build


@pytest.fixture(scope="module")
def fsa(make_run: Callable[..., Run]) -> Run:
    """FedFSA with a checkpoint of every round."""
    return make_run(
        algorithm={"name": "fedfsa", "layers": 1},
        model={"name": "mlp", "hidden": [5, 4]},
        checkpoints={"every": 1, "keep_locals": "all", "keep_clients": "all"},
        rounds={"count": 2, "participants": 3},
    )


def places(run: Run) -> dict[str, slice]:
    found, start = {}, 0
    for name, parameter in run.model.named_parameters():
        found[name] = slice(start, start + parameter.numel())
        start += parameter.numel()
    return found


def test_layers_against_plain_loops(fsa: Run, tmp_path: Path) -> None:
    table = ask("sensitivity", [fsa], tmp_path, rounds="1,2", radius=0.2)
    where = places(fsa)
    names = list(where)
    assert table["layer"].values.tolist() == names
    assert table["entries"].values.tolist() == [place.stop - place.start for place in where.values()]
    participants = [(round, k) for round in (1, 2) for k in sorted(fsa.local_points(round))]
    assert table["loss"].stack(row=("round", "client")).dropna("row")["row"].values.tolist() == participants
    for round, k in participants:
        here = table.sel(round=round, client=k)
        w, start = fsa.local_points(round)[k], fsa.point(round - 1)
        g, base = gradient_at(fsa, w, k), float(loss_at(fsa, w, k))
        e = 0.2 * g / g.norm()
        top, slope, far = float(loss_at(fsa, w + e, k)), gradient_at(fsa, w + e, k), gradient_at(fsa, start, k)
        assert float(here["loss"]) == pytest.approx(base)
        assert float(here["sam_rise"]) == pytest.approx(top - base, rel=1e-9)
        assert float(here["global_sensitivity"]) == pytest.approx(abs(float(loss_at(fsa, start, k)) - base), rel=1e-9)
        for name, place in where.items():
            moved = w[place] - start[place]
            assert float(here["moved"].sel(layer=name)) == pytest.approx(float(moved @ moved))
            both = [where[other] for other in names if other.split(".")[0] == name.split(".")[0]]
            length = torch.cat([w[other] - start[other] for other in both]).norm()  # weight and bias, eq. 11
            assert len(both) == 2
            assert float(here["adaptive"].sel(layer=name)) == pytest.approx(float((moved.abs() / length).mean()))
            without, only = w + e, w.clone()
            without[place] = w[place]
            only[place] += 0.2 * g[place] / g[place].norm()
            removed = abs(top - float(loss_at(fsa, without, k)))
            assert float(here["removal"].sel(layer=name)) == pytest.approx(removed, rel=1e-8)
            assert float(here["rise"].sel(layer=name)) == pytest.approx(float(loss_at(fsa, only, k)) - base, rel=1e-8)
            assert float(here["first_order"].sel(layer=name)) == pytest.approx(
                abs(float(slope[place] @ e[place])), rel=1e-9
            )
            product = abs(float(far[place] @ moved))
            assert float(here["global_first_order"].sel(layer=name)) == pytest.approx(product, rel=1e-9)
            assert float(here["layer_gradient_norm"].sel(layer=name)) == pytest.approx(float(g[place].norm()))


def test_the_chosen_layers_are_those_that_the_run_chose(fsa: Run, tmp_path: Path) -> None:
    table = ask("sensitivity", [fsa], tmp_path, rounds="all")
    weights = [name for name in places(fsa) if "weight" in name]
    for round in (1, 2):
        for k in fsa.local_points(round):
            here = table.sel(round=round, client=k)
            own = fsa.checkpoint(round).clients[k]["chosen"].numpy()
            np.testing.assert_array_equal(here["chosen"].sel(measure="square"), own)
            first = here["chosen"].idxmax("layer")
            moved = here["moved"].sel(layer=weights)
            assert first.sel(measure="square") == moved.idxmax()
            assert first.sel(measure="mean") == (moved / moved["entries"]).idxmax()
    counts = table["chosen"].sum("layer", min_count=1)
    assert (counts == 1).where(counts.notnull(), True).all()
    assert int(counts.count()) == 2 * 3 * 3  # rounds, participants, measures
    two = ask("sensitivity", [fsa], tmp_path / "two", layers=2, clients=1)
    assert two["chosen"].dtype == bool  # the only client is a participant
    assert two["chosen"].sum("layer").values.tolist() == [[[2, 2, 2]]]


def test_small_radii_make_removal_the_first_order_term(fsa: Run, tmp_path: Path) -> None:
    table = ask("sensitivity", [fsa], tmp_path, radius=1e-6)
    np.testing.assert_allclose(table["removal"], table["first_order"], rtol=1e-3, atol=1e-12)
    norms = table["layer_gradient_norm"]
    np.testing.assert_allclose((norms**2).sum("layer"), table["gradient_norm"] ** 2)
    np.testing.assert_allclose(table["rise"], 1e-6 * norms, rtol=1e-3)


def test_counted_from_the_global_model_where_that_is_asked_for(run: Run, tmp_path: Path, forget_sent) -> None:
    table = ask("sensitivity", [run], tmp_path, reference="global")
    assert table.attrs["reference"] == "global"
    k = int(table["client"][0])
    moved = run.local_points(4)[k] - run.point(4)
    assert float(table["moved"].isel(round=0, client=0).sum()) == pytest.approx(float(moved @ moved))
    with pytest.raises(ValueError, match=r"round 4 does not keep the point that was sent; .* or set reference"):
        ask("sensitivity", [forget_sent(run)], tmp_path / "sent")


def test_a_layer_that_never_moved(run: Run, tmp_path: Path, monkeypatch) -> None:
    still = run.point(4).clone()
    still[-10:] += 1.0  # the last bias only
    monkeypatch.setattr(run, "local_points", lambda round: {2: still})
    table = ask("sensitivity", [run], tmp_path, reference="global")
    table = table.sel(round=4, client=2)
    assert table["moved"].values.tolist() == pytest.approx([0, 0, 0, 10])
    assert table["adaptive"].values.tolist() == pytest.approx([0, 0, 0, 1 / 10**0.5])


def test_part_of_the_data_and_bad_settings(run: Run, tmp_path: Path) -> None:
    table = ask("sensitivity", [run], tmp_path, limit=30, clients=2)
    assert len(table["client"]) == 2
    assert (table["loss_error"] > 0).all()
    for k in table["client"].values.tolist():
        part = run.objective("train", k, limit=30)
        assert float(table["loss"].sel(round=4, client=k)) == pytest.approx(part.loss(run.local_points(4)[k]))
    with pytest.raises(ValueError, match="radius must be above 0, got -1"):
        build(sensitivity.Settings, {"radius": -1.0}, "sensitivity")
    with pytest.raises(ValueError, match="layers must be at least 1, got 0"):
        build(sensitivity.Settings, {"layers": 0}, "sensitivity")


def test_norm_layers(make_run: Callable[..., Run], tmp_path: Path) -> None:
    """Running statistics follow the weights in a point; they are not layers, and do not count as movement."""
    run = make_run(
        model={"name": "tests.analysis.studies.test_sensitivity:normed"},
        checkpoints={"every": 1, "keep_locals": "all"},
        rounds={"count": 1, "participants": 2},
    )
    table = ask("sensitivity", [run], tmp_path)
    assert table["layer"].values.tolist() == [name for name, _ in run.model.named_parameters()]
    size = sum(parameter.numel() for parameter in run.model.parameters())
    moved = (run.local_points(1)[int(table["client"][0])] - run.point(0))[:size]
    assert float(table["moved"].isel(round=0, client=0).sum()) == pytest.approx(float(moved @ moved))


def normed(classes: int, channels: int, size: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(channels * size * size, 4),
        torch.nn.BatchNorm1d(4),
        torch.nn.Linear(4, classes),
    )


def test_read_again(run: Run, tmp_path: Path) -> None:
    check_reading("sensitivity", run, tmp_path)


def test_interrupted(run: Run, tmp_path: Path) -> None:
    check_interruption("sensitivity", run, tmp_path)
