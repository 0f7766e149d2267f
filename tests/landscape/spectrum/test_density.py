"""Stochastic Lanczos quadrature against dense spectra: moments, exactness, breakdown, smoothing."""

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from torch import Tensor, nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn import functional

from landscape import Objective
from landscape.operators import MatrixOperator, Operator, ShiftedOperator
from landscape.results import Density
from landscape.spectrum import density
from landscape.spectrum.density import quadrature, spectral_density
from landscape.spectrum.trace import trace


def symmetric(size: int, seed: int) -> Tensor:
    matrix = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (matrix + matrix.T) / 2


def with_spectrum(values: Tensor, seed: int) -> Tensor:
    rotation, _ = torch.linalg.qr(symmetric(len(values), seed))
    return rotation @ torch.diag(values.double()) @ rotation.T


class Spy(Operator):
    """Remembers how many rows came at once."""

    def __init__(self, matrix: Tensor):
        self.inner = MatrixOperator(matrix)
        self.size, self.dtype, self.device = self.inner.size, self.inner.dtype, self.inner.device
        self.blocks: list[int] = []

    def _product(self, rows: Tensor) -> Tensor:
        self.blocks.append(len(rows))
        return self.inner.matmat(rows)


@pytest.mark.parametrize(("steps", "powers"), [(7, range(1, 8)), (12, range(1, 8)), (3, range(1, 6))])
def test_all_coordinates_together_give_every_moment_exactly(steps: int, powers: range) -> None:
    """sum_j e_j' H^p e_j = trace(H^p); m steps are exact up to the power 2m - 1."""
    matrix = symmetric(7, 0)
    nodes, weights = quadrature(MatrixOperator(matrix), torch.eye(7), steps)
    assert nodes.shape == weights.shape == (7, steps)
    for power in powers:
        exact = float(torch.linalg.matrix_power(matrix, power).trace())
        assert np.nansum(weights * nodes**power) == pytest.approx(exact, rel=1e-10, abs=1e-10)


def test_too_few_steps_are_not_exact() -> None:
    matrix = symmetric(7, 0)
    nodes, weights = quadrature(MatrixOperator(matrix), torch.eye(7), 3)
    exact = float(torch.linalg.matrix_power(matrix, 6).trace())
    assert abs(np.nansum(weights * nodes**6) - exact) > 1e-3 * exact


def test_moments_of_a_network_hessian_within_standard_errors() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    inputs, targets = torch.randn(11, 3, dtype=torch.float64), torch.arange(11) % 3
    named = {name: tensor.detach() for name, tensor in model.named_parameters()}
    sizes = [tensor.numel() for tensor in named.values()]

    def loss(flat: Tensor) -> Tensor:
        parts = {name: part.view(old.shape) for (name, old), part in zip(named.items(), flat.split(sizes), strict=True)}
        return functional.cross_entropy(functional_call(model, parts, (inputs,)), targets)

    H = hessian(loss, torch.cat([tensor.reshape(-1) for tensor in named.values()]))
    objective = Objective(model, (inputs, targets), chunk_size=4)
    found = spectral_density(objective.hessian(objective.theta), steps=20, probes=60)
    for power, exact in ((1, H.trace()), (2, (H**2).sum())):
        value, error = found.moment(power)
        assert abs(value - float(exact) / 31) < 4 * error
        assert error < 0.3 * abs(value)
    assert found.size == 31
    values = torch.linalg.eigvalsh(H)
    assert found.extremes == pytest.approx((float(values[0]), float(values[-1])), rel=1e-6)


def test_first_moment_is_the_trace_from_the_same_probes() -> None:
    operator = MatrixOperator(symmetric(23, 1))
    value, error = spectral_density(operator, steps=5, probes=11, seed=4).moment(1)
    estimate = trace(operator, probes=11, seed=4)
    assert value * 23 == pytest.approx(estimate.value, rel=1e-10)
    assert error * 23 == pytest.approx(estimate.standard_error, rel=1e-10)


def test_rows_are_probability_weights_within_the_spectrum() -> None:
    matrix = symmetric(40, 2)
    found = spectral_density(MatrixOperator(matrix), steps=9, probes=13)
    assert found.nodes.shape == found.weights.shape == (13, 9)
    assert found.products == 13 * 9
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, atol=1e-13)
    assert (found.weights >= 0).all()
    values = torch.linalg.eigvalsh(matrix)
    assert found.nodes.min() >= float(values[0]) - 1e-10
    assert found.nodes.max() <= float(values[-1]) + 1e-10


def test_no_ghosts_after_outliers_converge() -> None:
    """Outliers converge within a few steps; without re-orthogonalisation they would appear again and again."""
    values = torch.cat([torch.linspace(-1, 1, 57), torch.tensor([50.0, 300.0, 1000.0])]).double()
    found = spectral_density(MatrixOperator(with_spectrum(values, 3)), steps=60, probes=2)
    for row in found.nodes:
        np.testing.assert_allclose(row, values.sort().values, atol=1e-7)


def test_basis_stays_orthonormal_through_cancellation() -> None:
    """A shift of 1e10 leaves one part in 1e10 of every product; a single Gram-Schmidt pass is then not enough."""
    operator = ShiftedOperator(MatrixOperator(symmetric(30, 11)), 1e10)
    run = density._Recurrence(torch.ones(30, dtype=torch.float64), 25)
    while not run.closed:
        run.extend(operator.matvec(run.newest))
    torch.testing.assert_close(run.basis @ run.basis.T, torch.eye(25, dtype=torch.float64), rtol=0, atol=1e-13)


def test_a_closed_krylov_space_ends_the_probe_exactly() -> None:
    values = torch.tensor([-3.0] * 10 + [0.0] * 15 + [5.0] * 6)
    matrix = with_spectrum(values, 4)
    found = spectral_density(MatrixOperator(matrix), steps=20, probes=9)
    assert found.products == 9 * 3
    np.testing.assert_allclose(found.nodes[:, :3], np.tile([-3.0, 0.0, 5.0], (9, 1)), atol=1e-12)
    assert np.isnan(found.nodes[:, 3:]).all()
    assert np.isnan(found.weights[:, 3:]).all()
    value, error = found.moment(2)
    assert abs(value - float((matrix**2).sum()) / 31) < 4 * error


def test_probes_that_close_early_leave_the_others_alone() -> None:
    matrix = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64))
    starts = torch.tensor([[1.0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, 2, 0]], dtype=torch.float64)
    spy = Spy(matrix)
    nodes, weights = quadrature(spy, starts, 8)
    assert spy.blocks == [3, 2, 1, 1, 1]
    np.testing.assert_allclose(nodes[0, :1], [1.0])
    np.testing.assert_allclose(nodes[1, :5], [1, 2, 3, 4, 5], atol=1e-12)
    np.testing.assert_allclose(weights[1, :5], 0.2, atol=1e-12)
    np.testing.assert_allclose(nodes[2, :2], [2, 4], atol=1e-12)
    np.testing.assert_allclose(weights[2, :2], [0.2, 0.8], atol=1e-12)
    assert np.isfinite(nodes).sum(axis=1).tolist() == [1, 5, 2]


@pytest.mark.parametrize("matrix", [torch.zeros(6, 6), torch.full((1, 1), -2.0), 3 * torch.eye(4)])
def test_degenerate_operators(matrix: Tensor) -> None:
    found = spectral_density(MatrixOperator(matrix), steps=5, probes=3)
    assert found.nodes.shape == (3, 5)
    np.testing.assert_allclose(found.nodes[:, 0], float(matrix[0, 0]), atol=1e-6)
    np.testing.assert_allclose(found.weights[:, 0], 1)
    curve, _ = found.curve(np.linspace(-5, 5, 11))
    assert np.isfinite(curve).all()


def test_low_rank_in_single_precision() -> None:
    factor = torch.randn(200, 3, generator=torch.Generator().manual_seed(6))
    matrix = factor @ factor.T
    found = spectral_density(MatrixOperator(matrix), steps=300, probes=4)
    exact = np.append(0.0, torch.linalg.eigvalsh(factor.double().T @ factor.double()))
    for nodes, weights in zip(found.nodes, found.weights, strict=True):
        # rounding lets a run go on past its four nodes, but what it then finds has next to no weight
        assert np.nansum(weights[np.abs(nodes[:, None] - exact).min(axis=1) > 1e-2]) < 1e-6
        assert [np.nansum(weights[np.abs(nodes - value) < 1e-2]) > 1e-6 for value in exact] == [True] * 4
    value, error = found.moment(2)
    assert abs(value - float((matrix.double() ** 2).sum()) / 200) < 4 * error


def test_blocks_of_at_most_eight_probes() -> None:
    spy = Spy(symmetric(30, 7))
    calls: list[tuple[int, int]] = []
    found = spectral_density(spy, steps=4, probes=11, progress=lambda done, total: calls.append((done, total)))
    assert spy.blocks == [8, 8, 8, 8, 3, 3, 3, 3]
    assert calls == [(done, 44) for done in (8, 16, 24, 32, 35, 38, 41, 44)]
    few = spectral_density(spy, steps=4, probes=3)
    np.testing.assert_allclose(few.nodes, found.nodes[:3], rtol=1e-9)


def test_memory_bounds_the_probes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(symmetric(30, 8))
    plenty = spectral_density(spy, steps=4, probes=3)
    spy.blocks.clear()
    one = 4 * 30 * 8
    monkeypatch.setattr(density, "MOST_BYTES", one - 1)
    np.testing.assert_allclose(spectral_density(spy, steps=4, probes=3).nodes, plenty.nodes, rtol=1e-9)
    assert max(spy.blocks) == 1
    monkeypatch.setattr(density, "available", lambda device: one // 2)
    with pytest.raises(ValueError, match=r"4 Lanczos steps keep .* write steps=1 or fewer"):
        spectral_density(spy, steps=4, probes=3)


def test_same_seed_same_bits() -> None:
    operator = MatrixOperator(symmetric(12, 9))
    first, again, other = (spectral_density(operator, steps=5, probes=3, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.nodes, again.nodes)
    assert np.array_equal(first.weights, again.weights)
    assert not np.array_equal(first.nodes, other.nodes)


def test_running_statistics_are_no_part_of_the_spectrum() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Tanh(), nn.Linear(2, 2)).double()
    data = torch.randn(9, 3, dtype=torch.float64), torch.arange(9) % 2
    objective = Objective(model, data, batchnorm="interpolated", weight_decay=0.5)
    H = objective.hessian(objective.theta)
    found = spectral_density(H, steps=30, probes=2)
    assert found.size == objective.size - 4 == 18
    value, _ = found.moment(1)
    assert value * 18 == pytest.approx(trace(H, probes=2).value)


def test_curve_is_the_smoothed_spectrum() -> None:
    matrix = symmetric(60, 10)
    found = spectral_density(MatrixOperator(matrix), steps=60, probes=40)
    grid = np.linspace(-16, 16, 801)
    value, error = found.curve(grid, width=0.8)
    values = torch.linalg.eigvalsh(matrix).numpy()
    exact = np.exp(-0.5 * ((grid[:, None] - values) / 0.8) ** 2).mean(axis=1) / (0.8 * np.sqrt(2 * np.pi))
    assert trapezoid(value, grid) == pytest.approx(1, abs=1e-6)
    inside = exact > 1e-3
    assert (np.abs(value - exact)[inside] / error[inside]).max() < 4.5
    assert np.isnan(spectral_density(MatrixOperator(matrix), steps=4, probes=1).curve(grid)[1]).all()


def test_named_widths_follow_their_conventions() -> None:
    nodes = np.array([[-1.0, 2.0, 9.0], [0.0, 5.0, np.nan]])
    weights = np.array([[0.2, 0.3, 0.5], [0.5, 0.5, np.nan]])
    found = Density(nodes, weights, size=7, products=5)
    grid = np.linspace(-5, 14, 39)
    assert found.extremes == (-1.0, 9.0)
    for name, width in (
        ("resolution", 10 / 3),
        ("pyhessian", np.sqrt(1e-5 * (7.5 + 0.02))),  # mean of the ranges 10 and 5, each end 0.01 further out
        ("papyan", 5.5 * 2 / (2 * np.sqrt(8 * np.log(3)))),  # half of the range 10 with 5 % at either end
    ):
        np.testing.assert_allclose(
            found.curve(grid, name)[0], found.curve(grid, float(width))[0], rtol=1e-9, atol=1e-300
        )
    flat = Density(nodes * 1e-3, weights, size=7, products=5)
    np.testing.assert_allclose(flat.curve(grid, "pyhessian")[0], flat.curve(grid, 1e-5**0.5)[0], rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(found.curve(grid)[0], found.curve(grid, 10 / 3)[0])


def test_bad_input_is_named() -> None:
    operator = MatrixOperator(symmetric(4, 0))
    with pytest.raises(ValueError, match="steps must be a whole number, at least 1; got 0"):
        spectral_density(operator, steps=0)
    with pytest.raises(ValueError, match="probes must be a whole number"):
        spectral_density(operator, probes=0)
    with pytest.raises(ValueError, match="zero vector"):
        quadrature(operator, torch.zeros(1, 4), 3)
    with pytest.raises(ValueError, match="not finite"):
        spectral_density(MatrixOperator(torch.full((4, 4), float("nan"))))
    found = spectral_density(operator, steps=3, probes=2)
    with pytest.raises(ValueError, match="width must be positive and finite, got 0"):
        found.curve(np.zeros(1), 0.0)
    with pytest.raises(ValueError, match="did you mean 'papyan'"):
        found.curve(np.zeros(1), "papian")


@pytest.mark.parametrize(
    ("dtype", "exponent"), [(torch.float32, -36), (torch.float32, 35), (torch.float64, -300), (torch.float64, 300)]
)
def test_every_size_that_the_precision_can_hold(dtype, exponent):
    A = torch.diag(torch.linspace(1, 2, 50, dtype=torch.float64))
    plain = spectral_density(MatrixOperator(A), steps=10, probes=3)
    scaled = spectral_density(MatrixOperator((A * 10.0**exponent).to(dtype)), steps=10, probes=3)
    np.testing.assert_allclose(scaled.nodes / 10.0**exponent, plain.nodes, rtol=1e-4)
    np.testing.assert_allclose(scaled.weights, plain.weights, atol=1e-4)
    grid = np.linspace(0.8, 2.2, 30)
    for width in ("resolution", "papyan"):
        curve, _ = scaled.curve(grid * 10.0**exponent, width)
        np.testing.assert_allclose(curve * 10.0**exponent, plain.curve(grid, width)[0], rtol=1e-2, atol=1e-3)
