"""Power iteration: correct momentum, honest residuals, mini-batches, and the published behaviour on request."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from landscape import Objective, eigenpairs, power_iteration
from landscape.operators import MatrixOperator
from landscape.results import Outcome
from landscape.spectrum.power import minibatches
from tests.landscape.cases import make
from tests.landscape.spectrum.matrices import check, matrix

VALUES = np.r_[1.3285, 1.0, np.linspace(-0.5, 0.9, 60)]


def test_converges_to_the_largest_magnitude():
    A = matrix(np.r_[-3.0, np.linspace(0, 2, 40)])
    check(A, power_iteration(MatrixOperator(A), max_iter=500, tol=1e-8), [-3.0])


def test_deflation_finds_the_next_ones_in_order():
    A = matrix(np.r_[4.0, -3.0, 2.0, np.linspace(0, 1, 40)])
    result = power_iteration(MatrixOperator(A), k=3, max_iter=500, tol=1e-7)
    check(A, result, [4.0, 2.0, -3.0], 1e-7)
    assert result.outcome is Outcome.CONVERGED


def test_twenty_steps_report_what_they_reached():
    A = matrix(VALUES)
    result = power_iteration(MatrixOperator(A), max_iter=20, tol=1e-8)
    assert result.outcome is Outcome.MAX_ITERATIONS
    assert (result.products, result.iterations[0]) == (20, 20)
    v = result.vectors[0]
    assert float((A @ v - result.values[0] * v).norm()) == pytest.approx(result.residuals[0], rel=1e-9)
    assert abs(result.values[0] - 1.3285) <= result.residuals[0]


def test_momentum_accelerates_and_leaves_the_value_alone():
    """At beta = lambda_2^2 / 4 the rate goes from the gap to its square root (Xu et al. 2018)."""
    A = matrix(VALUES)
    plain = power_iteration(MatrixOperator(A), max_iter=500, tol=1e-8)
    fast = power_iteration(MatrixOperator(A), max_iter=500, tol=1e-8, momentum=0.249)
    check(A, fast, [1.3285])
    assert fast.products < 0.6 * plain.products


def test_the_recursion_by_hand():
    """Three steps of w+ = A w - beta w-, unnormalised, give the direction of the third iterate."""
    A = matrix([2.0, -1.0, 0.5, 0.1])
    from landscape.rng import normal

    w = normal((4,), 0, "power", 0)
    before = torch.zeros(4, dtype=torch.float64)
    for _ in range(3):
        w, before = A @ w - 0.3 * before, w
    result = power_iteration(MatrixOperator(A), max_iter=4, tol=1e-15, momentum=0.3)
    cosine = float(result.vectors[0] @ w / w.norm())
    assert abs(cosine) == pytest.approx(1.0, abs=1e-14)


def test_as_published_shifts_by_its_momentum():
    A = matrix(VALUES)
    plain = power_iteration(MatrixOperator(A), as_published=True, max_iter=200)
    shifted = power_iteration(MatrixOperator(A), as_published=True, max_iter=200, momentum=0.1)
    assert plain.values[0] == pytest.approx(1.3285, abs=2e-3)
    assert shifted.values[0] == pytest.approx(1.2285, abs=2e-3)
    assert shifted.residuals[0] == pytest.approx(0.1, abs=5e-3)  # and the residual tells


def test_as_published_step_by_step():
    """The published recipe written out for two eigenpairs, two steps each."""
    A = matrix([2.0, 1.0, 0.5])
    from landscape.rng import torch_generator

    x = torch.rand(3, generator=torch_generator(0, "power")).double()
    for _ in range(2):
        y = A @ x
        value, x = float(x @ y), y / y.norm()
    first, z = x, x
    for _ in range(2):
        y = A @ z - value * (first @ z) * first
        second, z = float(z @ y), y / y.norm()
    result = power_iteration(MatrixOperator(A), k=2, as_published=True, max_iter=2)
    np.testing.assert_allclose(result.values, sorted([value, second], reverse=True), rtol=1e-12)


def test_mini_batches_steer_but_the_full_operator_judges():
    case = make("mlp")
    objective = Objective(case.model, case.data, chunk_size=32)
    H = objective.hessian(objective.theta)
    truth = eigenpairs(H, k=1, tol=1e-9)
    sampler = minibatches(objective, objective.theta, 35, seed=0)
    result = power_iteration(H, max_iter=15, sampler=sampler)
    v = result.vectors[0]
    assert float(v @ H.matvec(v)) == pytest.approx(result.values[0], abs=1e-12)
    assert truth.values[0] - 0.05 < result.values[0] <= truth.values[0] + 1e-12
    assert result.products == 16
    first, second = sampler(0).matvec(v), sampler(1).matvec(v)
    assert not torch.allclose(first, second)
    assert torch.equal(first, sampler(0).matvec(v))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be"),
        ({"k": 63}, "between 1 and 62"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"momentum": -1.0}, "momentum must be zero or positive"),
        ({"tol": -1.0}, "tol must be positive"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        power_iteration(MatrixOperator(matrix(VALUES)), **options)


@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [(torch.float32, -36), (torch.float32, 35), (torch.float64, -300), (torch.float64, 300), (torch.float64, 0)],
)
@pytest.mark.parametrize("as_published", [False, True])
def test_the_stated_residual_is_the_true_one_at_every_size(dtype, exponent, as_published):
    ordinary = matrix(VALUES)
    A = (ordinary * 10.0**exponent).to(dtype)
    result = power_iteration(MatrixOperator(A), k=3, max_iter=30, as_published=as_published)
    values, V = torch.from_numpy(result.values / 10.0**exponent), result.vectors.double()
    true = (V @ (A.double() / 10.0**exponent) - values[:, None] * V).norm(dim=1).numpy()
    floor = 8 * torch.finfo(dtype).eps * 1.33
    np.testing.assert_array_less(true, result.residuals / 10.0**exponent + 1e-15)
    np.testing.assert_allclose(result.residuals / 10.0**exponent, true, rtol=1e-3, atol=2 * floor)
    assert abs(values[0] - 1.3285) < 0.01
    assert not result.verified


def test_as_published_states_the_residual_where_deflation_leaves_nothing():
    """The second search starts at the first eigenvector, which deflation sends to zero: it returns 0 for it."""
    A = torch.diag(torch.tensor([2.0, 0.0, 0.0, 0.0], dtype=torch.float64))
    result = power_iteration(MatrixOperator(A), k=2, as_published=True)
    np.testing.assert_allclose(result.values, [2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(result.residuals, [0.0, 2.0], atol=1e-12)
    assert result.converged.tolist() == [True, False]
    zero = power_iteration(MatrixOperator(torch.zeros(4, 4)), k=2, as_published=True)
    assert zero.residuals.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(zero.vectors.norm(dim=1), 1.0, rtol=1e-6)


def test_float32_states_its_rounding():
    A = matrix(VALUES, dtype=torch.float32)
    result = power_iteration(MatrixOperator(A), max_iter=500, tol=1e-6)
    assert result.residuals[0] >= 8 * torch.finfo(torch.float32).eps * 1.328


def test_momentum_means_the_same_at_every_size():
    A = matrix(VALUES)
    plain = power_iteration(MatrixOperator(A), max_iter=10, momentum=0.25)
    small = power_iteration(MatrixOperator(A * 2.0**-80), max_iter=10, momentum=0.25 * 2.0**-160)
    np.testing.assert_allclose(small.values * 2.0**80, plain.values, rtol=1e-14)
    published = power_iteration(MatrixOperator(A * 2.0**-80), as_published=True, max_iter=200, momentum=0.1 * 2.0**-80)
    assert published.values[0] * 2.0**80 == pytest.approx(1.2285, abs=2e-3)
