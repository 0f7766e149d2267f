"""Standard errors of sub-samples against closed forms, and eigenvalues of sub-samples against those of all data."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.subjects import Run
from landscape import Objective, eigenpairs
from landscape.objectives import subsample_errors
from tests.analysis.helpers import ask

DRAWS = 80


def regression(count: int) -> Objective:
    """v' H_i v = (x_i . v)^2."""
    X = torch.randn(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = lambda outputs, targets: 0.5 * (outputs[:, 0] - targets).square()  # noqa: E731
    model = torch.nn.Linear(3, 1, bias=False).double()
    return Objective(model, (X, X.sum(dim=1)), loss=loss, workers=1, chunk_size=64)


def classification(count: int) -> Objective:
    """Three classes, one of them far out, which has another curvature: draws by class matter."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(count) % 3
    X = torch.randn(count, 3, generator=generator, dtype=torch.float64) * (1 + 2.0 * (y == 2))[:, None]
    X *= torch.tensor([2.0, 1.0, 0.5])  # or the largest eigenvalues would lie too close together for first order
    model = torch.nn.Linear(3, 3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return Objective(model, (X, y), workers=1, chunk_size=128)


def test_quotients_against_the_variance_of_the_examples() -> None:
    """On average the squares are S^2 / n (1 - n / N), with S^2 the variance of (x_i . v)^2."""
    full = regression(400)
    v = torch.eye(3, dtype=torch.float64)[:2]
    own = torch.cat([chunk[0] for chunk in full.chunks])[:, :2].square()
    exact = own.var(dim=0).numpy() / 100 * (1 - 100 / 400)
    found = np.stack(
        [subsample_errors.quotient_errors(full.subset(100, seed=seed), full.theta, v) ** 2 for seed in range(DRAWS)]
    )
    noise = found.std(axis=0) / math.sqrt(DRAWS)
    assert (noise < 0.15 * exact).all()
    assert (np.abs(found.mean(axis=0) - exact) < 4 * noise).all()
    assert subsample_errors.quotient_errors(full, full.theta, v).tolist() == [0, 0]


def test_the_largest_eigenvalue_of_a_subset_is_within_its_error() -> None:
    full = classification(600)
    exact = eigenpairs(full.hessian(full.theta), 1, tol=1e-8).values[0]
    inside, scores = 0, []
    for seed in range(DRAWS):
        part = full.subset(150, seed=seed)
        pairs = eigenpairs(part.hessian(full.theta), 1, tol=1e-6)
        error = subsample_errors.quotient_errors(part, full.theta, pairs.vectors)[0]
        scores.append((pairs.values[0] - exact) / error)
        inside += abs(scores[-1]) < 2
    assert 0.87 * DRAWS < inside <= DRAWS
    assert 0.7 < np.std(scores) < 1.3


def test_classes_are_dealt_out_evenly() -> None:
    parts = subsample_errors.deal(classification(60), 10)
    for part in parts:
        labels = torch.cat([chunk[1] for chunk in part.chunks])
        assert torch.bincount(labels).tolist() == [2, 2, 2]
    seen = torch.cat([chunk[0] for part in parts for chunk in part.chunks])
    assert len(torch.unique(seen, dim=0)) == 60


def test_one_part_knows_no_error() -> None:
    assert math.isnan(subsample_errors.standard_error(np.asarray([1.0]), [3], 10))
    assert subsample_errors.standard_error(np.asarray([1.0, 1.0]), [3, 3], 10) == 0


def test_curvature_says_what_it_saw(run: Run, tmp_path: Path) -> None:
    some = ask("curvature", [run], tmp_path, rounds="4", top=2, limit=200)
    everyone = len(run.examples("train")[1])
    assert (some.attrs["examples"], some.attrs["population"]) == (200, everyone)
    assert (some["eigenvalue_standard_error"] > 0).all()
    exact = ask("curvature", [run], tmp_path / "all", rounds="4", top=2)
    assert (exact["eigenvalue_standard_error"] == 0).all()
    assert exact.attrs["examples"] == exact.attrs["population"] == everyone
    assert (np.abs(some["eigenvalue"] - exact["eigenvalue"]) < 6 * some["eigenvalue_standard_error"]).all()


def test_local_and_global_errors(run: Run, tmp_path: Path) -> None:
    found = ask("local_global", [run], tmp_path, limit=60, clients=1)
    sizes = [len(run.examples("train", k)[1]) for k in run.clients]
    assert found["population"].values.tolist() == sizes
    assert found["examples"].values.tolist() == [min(size, 60) for size in sizes]
    assert found.attrs["population"] == sum(sizes)
    assert found.attrs["examples"] == sum(min(size, 60) for size in sizes)
    assert (found["global_standard_error"].isel(round=0).dropna("client") > 0).all()
    drawn = np.asarray(sizes) > 60
    errors = found["global_model_on_client_standard_error"].isel(round=0)
    assert (errors[drawn] > 0).all()
    assert (errors[~drawn] == 0).all()
    # the clients' errors add up: H = sum of p_k H_k
    v = eigenpairs(run.objective().hessian(run.point(4)), 1).vectors
    objectives = {k: run.objective("train", k, limit=60) for k in run.clients}
    shares = run.shares(run.clients)
    whole = subsample_errors.combined_quotient_errors(objectives, shares, run.point(4), v)
    single = [shares[k] * subsample_errors.quotient_errors(one, run.point(4), v, 4) for k, one in objectives.items()]
    assert whole == pytest.approx(np.sqrt(np.sum(np.square(single), axis=0)), rel=0.7)
