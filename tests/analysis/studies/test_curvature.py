"""Eigenvalues over rounds against dense Hessians."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.store import Answer
from analysis.subjects import Limits, Run
from landscape.spectrum.krylov_space import random_rows
from reports.inputs import summary
from tests.analysis.helpers import ask, dense


def test_against_dense_hessians(run: Run, tmp_path: Path) -> None:
    found = ask("curvature", [run], tmp_path, top=3, tol=1e-8, smallest=True, trace=30, density=2, density_rounds="all")
    assert found["round"].values.tolist() == [0, 2, 4]
    for round in (0, 2, 4):
        here = found.sel(round=round)
        H = dense(run, run.point(round), *run.examples("train"))
        values = torch.linalg.eigvalsh(H)
        np.testing.assert_allclose(here["eigenvalue"], values.flip(0)[:3], rtol=1e-10)
        assert float(here["smallest"]) == pytest.approx(float(values[0]), rel=1e-6)
        assert abs(float(here["trace"]) - float(H.trace())) < 5 * float(here["trace_error"])
        np.testing.assert_allclose(here["weight"].sum("step"), 1.0)
    assert found["converged"].all()
    assert found["verified"].all()  # a network this small is looked at twice


def test_the_density_is_taken_of_the_last_round_unless_asked(run: Run, tmp_path: Path) -> None:
    found = ask("curvature", [run], tmp_path, rounds="0,2", top=1, density=1)
    assert found["round"].values.tolist() == [0, 2]
    assert found["weight"].sel(round=0).isnull().all()
    assert float(found["weight"].sel(round=2).sum()) == pytest.approx(1.0)


def test_a_run_is_judged_by_its_average_once_there_is_one(make_run, tmp_path: Path) -> None:
    run = make_run(swa={"start": 0.5, "cycle": 1}, checkpoints={"every": 1})
    final, server = (ask("curvature", [run], tmp_path / name, top=1, model=name) for name in ("final", "server"))
    averaged = ask("curvature", [run], tmp_path / "swa", top=1, model="swa", rounds="last")
    assert final["loss"][0] == server["loss"][0]  # before it began
    assert final["loss"][-1] == averaged["loss"][-1] != server["loss"][-1]


def test_the_last_round_sharpens_from_where_the_one_before_ended(run: Run, tmp_path: Path) -> None:
    warm = ask("curvature", [run], tmp_path / "warm", rounds="2,4", top=2)
    cold = ask("curvature", [run], tmp_path / "cold", rounds="2,4", top=2, warm=False)
    np.testing.assert_allclose(warm["eigenvalue"], cold["eigenvalue"], rtol=1e-4)
    assert warm["products"][0] == cold["products"][0]
    assert warm["products"][1] < cold["products"][1]


def test_the_published_protocol_stands_beside_ours(run: Run, tmp_path: Path) -> None:
    """Power iteration on the dense Hessian by hand, deflated by projection, from the same random starts."""
    found = ask("curvature", [run], tmp_path, rounds="last", top=2, published=True)
    plain = ask("curvature", [run], tmp_path / "plain", rounds="last", top=2)
    assert not [name for name in plain if str(name).startswith("published")]
    for name in plain:
        np.testing.assert_array_equal(found[name], plain[name])
    theta = run.point(4)
    H = dense(run, theta, *run.examples("train"))
    operator = run.objective("train").hessian(theta.to(H.dtype))
    known: list[torch.Tensor] = []
    for index in range(2):
        v = random_rows(operator, 1, 0, "power", index)[0].double()
        for step in range(1, 21):
            for other in known:
                v = v - (v @ other) * other
            v = v / v.norm()
            value = v @ H @ v
            if (H @ v - value * v).norm() <= 1e-3 * value.abs() or step == 20:
                break
            v = H @ v
        known.append(v)
        assert int(found["published_iterations"][0, index]) == step <= 20
    among = torch.stack(known) @ H @ torch.stack(known).T  # the best values among both vectors
    expected = torch.linalg.eigvalsh(among).flip(0)
    np.testing.assert_allclose(found["published_eigenvalue"][0], expected, rtol=1e-6)
    assert float(found["published_eigenvalue"][0, 0]) <= float(torch.linalg.eigvalsh(H)[-1]) * (1 + 1e-9)
    assert summary.numbers(Answer("curvature", "default", {}, {}, found))["lambda_1_published"] == pytest.approx(
        float(expected[0]), rel=1e-6
    )


def test_test_data_and_limits(run: Run, tmp_path: Path) -> None:
    found = ask("curvature", [run], tmp_path, rounds="last", top=1, split="test", tol=1e-8)
    H = dense(run, run.point(4), *run.examples("test"))
    assert found["eigenvalue"].item() == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-10)
    some = ask("curvature", [run], tmp_path / "some", rounds="last", top=1, limit=100)
    assert some["eigenvalue"].item() != pytest.approx(found["eigenvalue"].item(), rel=1e-3)


def test_as_many_workers_as_one_likes(run: Run, tmp_path: Path) -> None:
    two = Run(run.path, limits=Limits(workers=2))
    one = ask("curvature", [run], tmp_path / "one", rounds="last", top=2)
    other = ask("curvature", [two], tmp_path / "two", rounds="last", top=2)
    np.testing.assert_array_equal(one["eigenvalue"], other["eigenvalue"])


def test_mistakes(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got \"training\""):
        ask("curvature", [run], tmp_path, split="training")
    with pytest.raises(ValueError, match="round 4 has no swa model, only server, mean"):
        ask("curvature", [run], tmp_path, rounds="last", model="swa")
