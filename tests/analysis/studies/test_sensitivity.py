"""Layer by layer against tensors cut out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.studies import sensitivity
from analysis.subjects import Run
from tests.analysis.studies.test_drift import answer, check_interruption, check_reading, gradient_at, loss_at


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
    table = answer(sensitivity.STUDY, [fsa], tmp_path, rounds="1,2", radius=0.2)["layers"]
    where = places(fsa)
    names = list(where)
    assert table["layer"].tolist() == list(where)
    assert table["entries"].tolist() == [place.stop - place.start for place in where.values()]
    assert table["round_of"].tolist() == [1, 1, 1, 2, 2, 2]
    for row, (round, k) in enumerate(zip(table["round_of"].tolist(), table["client"].tolist(), strict=True)):
        w, start = fsa.local_points(round)[k], fsa.point(round - 1)
        g, base = gradient_at(fsa, w, k), float(loss_at(fsa, w, k))
        e = 0.2 * g / g.norm()
        top, slope, far = float(loss_at(fsa, w + e, k)), gradient_at(fsa, w + e, k), gradient_at(fsa, start, k)
        assert table["loss"][row] == pytest.approx(base)
        assert table["sam_rise"][row] == pytest.approx(top - base, rel=1e-9)
        assert table["global_sensitivity"][row] == pytest.approx(abs(float(loss_at(fsa, start, k)) - base), rel=1e-9)
        for layer, place in enumerate(where.values()):
            moved = w[place] - start[place]
            assert table["moved"][row, layer] == pytest.approx(float(moved @ moved))
            both = [other for name, other in where.items() if name.split(".")[0] == names[layer].split(".")[0]]
            length = torch.cat([w[other] - start[other] for other in both]).norm()  # weight and bias, eq. 11
            assert len(both) == 2
            assert table["adaptive"][row, layer] == pytest.approx(float((moved.abs() / length).mean()))
            without, only = w + e, w.clone()
            without[place] = w[place]
            only[place] += 0.2 * g[place] / g[place].norm()
            removed = abs(top - float(loss_at(fsa, without, k)))
            assert table["removal"][row, layer] == pytest.approx(removed, rel=1e-8)
            assert table["rise"][row, layer] == pytest.approx(float(loss_at(fsa, only, k)) - base, rel=1e-8)
            assert table["first_order"][row, layer] == pytest.approx(abs(float(slope[place] @ e[place])), rel=1e-9)
            product = abs(float(far[place] @ moved))
            assert table["global_first_order"][row, layer] == pytest.approx(product, rel=1e-9)
            assert table["layer_gradient_norm"][row, layer] == pytest.approx(float(g[place].norm()))


def test_the_chosen_layers_are_those_that_the_run_chose(fsa: Run, tmp_path: Path) -> None:
    table = answer(sensitivity.STUDY, [fsa], tmp_path, rounds="all")["layers"]
    for row, (round, k) in enumerate(zip(table["round_of"].tolist(), table["client"].tolist(), strict=True)):
        own = fsa.checkpoint(round).clients[k]["chosen"].numpy()
        np.testing.assert_array_equal(table["chosen"][row, 0], own)
        weights = [layer for layer, name in enumerate(table["layer"]) if "weight" in name]
        assert table["chosen"][row, 0].argmax() == max(weights, key=lambda layer: table["moved"][row, layer])
        per_entry = table["moved"][row] / table["entries"]
        assert table["chosen"][row, 1].argmax() == max(weights, key=lambda layer: per_entry[layer])
    assert (table["chosen"].sum(axis=-1) == 1).all()
    two = answer(sensitivity.STUDY, [fsa], tmp_path / "two", layers=2, clients=1)["layers"]
    assert two["chosen"].sum(axis=-1).tolist() == [[2, 2, 2]]


def test_small_radii_make_removal_the_first_order_term(fsa: Run, tmp_path: Path) -> None:
    table = answer(sensitivity.STUDY, [fsa], tmp_path, radius=1e-6)["layers"]
    np.testing.assert_allclose(table["removal"], table["first_order"], rtol=1e-3, atol=1e-12)
    norms = table["layer_gradient_norm"]
    np.testing.assert_allclose(np.square(norms).sum(axis=1), table["gradient_norm"] ** 2)
    np.testing.assert_allclose(table["rise"], 1e-6 * norms, rtol=1e-3)


def test_counted_from_the_global_model_where_that_is_asked_for(run: Run, tmp_path: Path, forget_sent) -> None:
    table = answer(sensitivity.STUDY, [run], tmp_path, reference="global")["layers"]
    assert table.attributes["reference"] == "global"
    k = int(table["client"][0])
    moved = run.local_points(4)[k] - run.point(4)
    assert table["moved"][0].sum() == pytest.approx(float(moved @ moved))
    with pytest.raises(ValueError, match=r"round 4 does not keep the point that was sent; .* or set reference"):
        answer(sensitivity.STUDY, [forget_sent(run)], tmp_path / "sent")


def test_a_layer_that_never_moved(run: Run, tmp_path: Path, monkeypatch) -> None:
    still = run.point(4).clone()
    still[-10:] += 1.0  # the last bias only
    monkeypatch.setattr(run, "local_points", lambda round: {2: still})
    table = answer(sensitivity.STUDY, [run], tmp_path, reference="global")["layers"]
    assert table["moved"][0].tolist() == pytest.approx([0, 0, 0, 10])
    assert table["adaptive"][0].tolist() == pytest.approx([0, 0, 0, 1 / 10**0.5])


def test_part_of_the_data_and_bad_settings(run: Run, tmp_path: Path) -> None:
    table = answer(sensitivity.STUDY, [run], tmp_path, limit=30, clients=2)["layers"]
    assert len(table["row"]) == 2
    assert (table["loss_error"] > 0).all()
    for row, k in enumerate(table["client"].tolist()):
        part = run.objective("train", k, limit=30)
        assert table["loss"][row] == pytest.approx(part.loss(run.local_points(4)[k]))
    with pytest.raises(ValueError, match="radius must be positive"):
        sensitivity.Settings(radius=-1.0)
    with pytest.raises(ValueError, match="layers must be a whole number"):
        sensitivity.Settings(layers=0)


def test_norm_layers(make_run: Callable[..., Run], tmp_path: Path) -> None:
    """Running statistics follow the weights in a point; they are not layers, and do not count as movement."""
    run = make_run(
        model={"name": "tests.analysis.studies.test_sensitivity:normed"},
        checkpoints={"every": 1, "keep_locals": "all"},
        rounds={"count": 1, "participants": 2},
    )
    table = answer(sensitivity.STUDY, [run], tmp_path)["layers"]
    assert table["layer"].tolist() == [name for name, _ in run.model.named_parameters()]
    size = sum(parameter.numel() for parameter in run.model.parameters())
    moved = (run.local_points(1)[int(table["client"][0])] - run.point(0))[:size]
    assert table["moved"][0].sum() == pytest.approx(float(moved @ moved))


def normed(classes: int, channels: int, size: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(channels * size * size, 4),
        torch.nn.BatchNorm1d(4),
        torch.nn.Linear(4, classes),
    )


def test_read_again(run: Run, tmp_path: Path) -> None:
    check_reading(sensitivity.STUDY, run, tmp_path)


def test_interrupted(run: Run, tmp_path: Path) -> None:
    check_interruption(sensitivity.STUDY, run, tmp_path)
