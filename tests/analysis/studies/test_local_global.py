"""Local and global sharpness against dense Hessians of every client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.subjects import Run
from landscape.operators import SumOperator
from tests.analysis.helpers import ask, dense


def test_the_hessian_of_everyone_is_the_sum_of_the_clients(run: Run) -> None:
    theta, shares = run.point(4), run.shares(run.clients)
    operators = {k: run.objective("train", k).hessian(theta) for k in run.clients}
    whole = SumOperator([operators[k] for k in shares], list(shares.values()))
    v = torch.randn(2, whole.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    H = dense(run, theta, *run.examples("train"))
    torch.testing.assert_close(whole.matmat(v), v @ H, rtol=1e-10, atol=1e-12)
    for client, operator in operators.items():
        own = dense(run, theta, *run.examples("train", client))
        torch.testing.assert_close(operator.matmat(v), v @ own, rtol=1e-10, atol=1e-12)


def test_against_dense_hessians(run: Run, tmp_path: Path) -> None:
    found = ask("local_global", [run], tmp_path, rounds="2,4", top=2, tol=1e-8)
    everyone, shares = run.examples("train"), run.shares(run.clients)
    for round in (2, 4):
        models = run.local_points(round)
        measured = found["local_eigenvalue"].sel(round=round).notnull().all("rank")
        assert found["client"][measured].values.tolist() == sorted(models)
        for client, w in models.items():
            local = found.sel(round=round, client=client)
            for name, data in (("local", run.examples("train", client)), ("global", everyone)):
                H = dense(run, w, *data)
                np.testing.assert_allclose(local[f"{name}_eigenvalue"], torch.linalg.eigvalsh(H).flip(0)[:2], rtol=1e-9)
            assert float(local["distance"]) == pytest.approx(float((w - run.point(round)).norm()))
            assert float(local["global_loss"]) == pytest.approx(run.objective().loss(w), rel=1e-12)
        w, largest = run.point(round), found.sel(round=round, rank=1)
        on_clients = largest["global_model_on_client_eigenvalue"]
        for client in run.clients:
            H = dense(run, w, *run.examples("train", client))
            top = float(torch.linalg.eigvalsh(H)[-1])
            assert float(on_clients.sel(client=client)) == pytest.approx(top, rel=1e-9)
        top = float(torch.linalg.eigvalsh(dense(run, w, *everyone))[-1])
        assert float(largest["global_model_eigenvalue"]) == pytest.approx(top, rel=1e-9)
        # the largest eigenvalue is convex in the matrix
        assert top <= sum(shares[k] * float(on_clients.sel(client=k)) for k in shares) + 1e-12


def test_rounds_without_local_models_are_named(make_run, tmp_path: Path) -> None:
    run = make_run(checkpoints={"every": 2, "keep_locals": "last"})
    with pytest.raises(ValueError, match="round 2 keeps no local models; rounds that do: 4"):
        ask("local_global", [run], tmp_path, rounds="2")


def test_all_rounds_are_those_that_keep_local_models(run: Run, tmp_path: Path) -> None:
    found = ask("local_global", [run], tmp_path, rounds="all", clients=1)  # round 0 has no participants
    assert found["round"].values.tolist() == [2, 4]
    assert found["distance"].count("client").values.tolist() == [1, 1]


def test_fewer_clients_on_request(run: Run, tmp_path: Path) -> None:
    found = ask("local_global", [run], tmp_path, clients=1)
    assert int(found["distance"].count()) == 1
    assert found["global_model_on_client_loss"].notnull().all()
    assert found["client"].values.tolist() == [0, 1, 2, 3, 4]
