"""Local and global sharpness against dense Hessians of every client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.studies.local_global import Settings, client_operators
from analysis.subjects import Run
from landscape.operators import SumOperator
from tests.analysis.studies.test_curvature import ask, dense


def test_the_hessian_of_everyone_is_the_sum_of_the_clients(run: Run) -> None:
    theta, shares = run.point(4), run.shares(run.clients)
    operators = client_operators(run, Settings(), theta)
    whole = SumOperator([operators[k] for k in shares], list(shares.values()))
    v = torch.randn(2, whole.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    H = dense(run, theta, *run.examples("train"))
    torch.testing.assert_close(whole.matmat(v), v @ H, rtol=1e-10, atol=1e-12)
    for client, operator in operators.items():
        own = dense(run, theta, *run.examples("train", client))
        torch.testing.assert_close(operator.matmat(v), v @ own, rtol=1e-10, atol=1e-12)


def test_against_dense_hessians(run: Run, tmp_path: Path) -> None:
    found = ask("local_global", [run], tmp_path, rounds="2,4", top=2, tol=1e-8)
    local, shared = found["local_models"], found["global_model"]
    everyone = run.examples("train")
    assert local["round_of"].tolist() == [2, 2, 2, 4, 4, 4]
    for row, (round, client) in enumerate(zip(local["round_of"], local["client"], strict=True)):
        w = run.local_points(int(round))[int(client)]
        for name, data in (("local", run.examples("train", int(client))), ("global", everyone)):
            H = dense(run, w, *data)
            np.testing.assert_allclose(
                local[f"{name}_eigenvalue"][row], torch.linalg.eigvalsh(H).flip(0)[:2], rtol=1e-9
            )
        assert local["distance"][row] == pytest.approx(float((w - run.point(int(round))).norm()))
        assert local["global_loss"][row] == pytest.approx(run.objective().loss(w), rel=1e-12)
    for row, round in enumerate((2, 4)):
        w = run.point(round)
        for client in run.clients:
            H = dense(run, w, *run.examples("train", client))
            top = float(torch.linalg.eigvalsh(H)[-1])
            assert shared["local_eigenvalue"][row, client, 0] == pytest.approx(top, rel=1e-9)
        top = float(torch.linalg.eigvalsh(dense(run, w, *everyone))[-1])
        assert shared["global_eigenvalue"][row, 0] == pytest.approx(top, rel=1e-9)
        # the largest eigenvalue is convex in the matrix
        shares = run.shares(run.clients)
        assert top <= sum(shares[k] * shared["local_eigenvalue"][row, k, 0] for k in shares) + 1e-12


def test_rounds_without_local_models_are_named(make_run, tmp_path: Path) -> None:
    run = make_run(checkpoints={"every": 2, "keep_locals": "last"})
    with pytest.raises(ValueError, match="round 2 keeps no local models; rounds that do: 4"):
        ask("local_global", [run], tmp_path, rounds="2")


def test_all_rounds_are_those_that_keep_local_models(run: Run, tmp_path: Path) -> None:
    found = ask("local_global", [run], tmp_path, rounds="all", clients=1)  # round 0 has no participants
    assert found["global_model"]["round"].tolist() == [2, 4]
    assert found["local_models"]["round_of"].tolist() == [2, 4]


def test_fewer_clients_on_request(run: Run, tmp_path: Path) -> None:
    found = ask("local_global", [run], tmp_path, clients=1)
    assert len(found["local_models"]["row"]) == 1
    assert found["global_model"]["client"].tolist() == [0, 1, 2, 3, 4]
