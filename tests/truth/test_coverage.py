"""Two standard errors hold the truth in 93 to 97 of 100 seeds, whatever the error is one of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from landscape import Layout, MatrixOperator, Objective, sharpness, spectral_density, trace
from landscape.rng import normal
from tests.truth.coverage import SETTINGS, coverage, subset_coverage

pytestmark = pytest.mark.truth
SIZE = 300
SEEDS = range(1000)
MANY = range(2000)  # at 300 seeds chance alone would carry one of ten settings beyond 93 to 97


def assert_covers(share: float, what: str) -> None:
    assert 0.93 <= share <= 0.97, f"{what}: {share:.3f}"


@pytest.mark.parametrize("name", SETTINGS)
def test_subsets(name: str) -> None:
    for quantity, share in subset_coverage(SETTINGS[name](), SIZE, MANY).items():
        assert_covers(share, f"{quantity} of {name}")


def rotated(values: Tensor) -> Tensor:
    Q = torch.linalg.qr(normal((len(values), len(values)), 0, "rotation"))[0]
    return Q @ torch.diag(values) @ Q.T


SPECTRA = {
    "flat": torch.linspace(-1, 2, 200, dtype=torch.float64),
    "decaying": torch.arange(1, 201, dtype=torch.float64) ** -1.0,
    "outliers": torch.cat([torch.tensor([30.0, 20.0, 10.0]), torch.linspace(0, 1, 197)]).double(),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
def test_traces(method: str, spectrum: str) -> None:
    A = rotated(SPECTRA[spectrum])
    probes = 100 if method == "hutchinson" else 99  # of which the last third is sampled
    answers = [trace(MatrixOperator(A), probes=probes, method=method, seed=seed) for seed in SEEDS]
    share = coverage([(one.value, one.standard_error) for one in answers], float(A.trace()))
    assert_covers(share, f"{method} of a {spectrum} spectrum")


def test_traces_of_layers() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).double()
    operator = MatrixOperator(rotated(torch.linspace(-1, 2, 43, dtype=torch.float64)))
    operator.layout = layout = Layout.of(model)
    answers = [trace(operator, probes=60, seed=seed) for seed in SEEDS]
    for name, entries in layout.layers.items():
        exact = sum(float(operator.matrix.diagonal()[entry.start : entry.stop].sum()) for entry in entries)
        assert_covers(coverage([one.layers[name] for one in answers], exact), f"layer {name}")


def test_spectral_densities() -> None:
    values = torch.linspace(-1, 2, 12, dtype=torch.float64)
    operator = MatrixOperator(rotated(values))
    answers = [spectral_density(operator, steps=12, probes=60, seed=seed) for seed in SEEDS[:400]]
    for power in (1, 2, 3):
        share = coverage([one.moment(power) for one in answers], float((values**power).mean()))
        assert_covers(share, f"moment {power}")
    grid = np.linspace(-0.8, 1.8, 5)
    kernel = np.exp(-0.5 * ((grid[:, None] - values.numpy()) / 0.3) ** 2) / (0.3 * np.sqrt(2 * np.pi))
    curves = [one.curve(grid, width=0.3) for one in answers]
    shares = [
        coverage([(float(mean[place]), float(error[place])) for mean, error in curves], float(exact))
        for place, exact in enumerate(kernel.mean(axis=1))
    ]
    assert_covers(float(np.mean(shares)), "density, mean over five places")


def regression(count: int, seed: int) -> Objective:
    X, noise = normal((count, 3), seed, "inputs"), normal((count, 1), seed, "noise")
    model = nn.Linear(3, 1, bias=False).double()
    nn.init.constant_(model.weight, 0.5)
    return Objective(model, (X, X.sum(dim=1, keepdim=True) + noise), nn.MSELoss(), workers=1)


@pytest.mark.parametrize("kind", ["average", "average_adaptive"])
def test_average_sharpness(kind: str) -> None:
    """The loss is quadratic: the mean rise is half the trace of T H T times the radius squared."""
    objective = regression(60, seed=0)
    theta = objective.theta
    H = objective.hessian(theta).matmat(torch.eye(3, dtype=torch.float64))
    scale = torch.ones(3).double() if kind == "average" else theta.abs()
    exact = 0.5 * 0.1**2 * float((scale**2 * H.diagonal()).sum())
    answers = [sharpness(objective, theta, 0.1, kind, samples=50, seed=seed) for seed in SEEDS[:500]]
    assert_covers(coverage([(one.value, one.standard_error) for one in answers], exact), kind)


def test_sharpness_over_batches() -> None:
    """The mean over batches of ten, as an estimate for batches that were not drawn."""
    theta = torch.full((3,), 0.5, dtype=torch.float64)
    exact = sharpness(regression(30_000, seed=-1), theta, 0.1, "sam", m=10).value
    answers = [sharpness(regression(600, seed=seed), theta, 0.1, "sam", m=10) for seed in SEEDS[:300]]
    assert_covers(coverage([(one.value, one.standard_error) for one in answers], exact), "batches")
