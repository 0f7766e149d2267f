"""Lanczos against dense eigenvalues: order, sign, clusters, copies, restarts, warm starts, honest residuals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from landscape import Objective, eigenpairs, power_iteration, spectral_density, trace
from landscape.operators import MatrixOperator, Operator
from landscape.results import Outcome
from landscape.runtime import memory
from landscape.runtime.machine import Memory
from landscape.spectrum.lanczos import CHEAP
from tests.landscape.cases import make
from tests.landscape.spectrum.matrices import check, matrix

SPECTRUM = 1.0 / np.arange(1, 201)


@pytest.mark.parametrize("k", [1, 2, 5, 17])
@pytest.mark.parametrize("block", [1, 3])
def test_decaying_spectrum(k, block):
    A = matrix(SPECTRUM)
    result = eigenpairs(MatrixOperator(A), k=k, tol=1e-8, block=block)
    check(A, result, SPECTRUM[:k])
    assert result.outcome is Outcome.CONVERGED
    assert result.converged.all()


INDEFINITE = np.r_[-10.0, -9.0, np.linspace(-1, 3, 60), 4.0]


@pytest.mark.parametrize(
    ("which", "k", "expected"),
    [
        ("largest", 2, [4.0, 3.0]),
        ("smallest", 3, [-1.0, -9.0, -10.0]),
        ("both", 3, [4.0, 3.0, -10.0]),
        ("both", 2, [4.0, -10.0]),
        ("magnitude", 3, [4.0, -9.0, -10.0]),
    ],
)
def test_sign_and_order_on_an_indefinite_matrix(which, k, expected):
    A = matrix(INDEFINITE)
    check(A, eigenpairs(MatrixOperator(A), k=k, tol=1e-7, which=which), expected)


def test_clustered_eigenvalues_without_ghosts_or_misses():
    values = np.r_[1.0, 1 - 1e-5, 1 - 2e-5, np.linspace(0, 0.5, 150)]
    A = matrix(values)
    check(A, eigenpairs(MatrixOperator(A), k=4, tol=1e-9), np.sort(values)[::-1][:4])


def test_many_steps_leave_no_ghosts():
    """200 products on a matrix whose top converges after ten: every eigenvalue is still found once."""
    values = np.r_[100.0, 50.0, np.linspace(0, 1, 148)]
    A = matrix(values)
    check(A, eigenpairs(MatrixOperator(A), k=100, tol=1e-7, max_products=500), np.sort(values)[::-1][:100], 1e-6)


@pytest.mark.parametrize(
    ("values", "k"),
    [([5.0, 5.0, 5.0, 1.0] + [0.0] * 40, 5), ([2.0] * 30, 3), ([0.0] * 10, 2), ([3.0] + [0.0] * 30, 2)],
)
def test_repeated_eigenvalues_and_low_rank_when_the_krylov_space_closes(values, k):
    A = matrix(values)
    check(A, eigenpairs(MatrixOperator(A), k=k, tol=1e-8), np.sort(values)[::-1][:k])


def test_repeated_eigenvalue_in_a_wide_spectrum():
    values = np.r_[5.0, 5.0, 4.5, np.linspace(0, 4, 300)]
    A = matrix(values)
    missed = eigenpairs(MatrixOperator(A), k=2, tol=1e-3, verify=False)
    assert missed.values[1] < 4.9  # what one Krylov sequence cannot see, and why `verify` and `block` exist
    assert not missed.verified
    for options in ({}, {"verify": True}, {"block": 2, "verify": False}):
        check(A, eigenpairs(MatrixOperator(A), k=2, tol=1e-3, **options), [5.0, 5.0], 1e-4)


@pytest.mark.parametrize("which", ["largest", "both"])
def test_thick_restart_reaches_the_same_answer_in_little_memory(which):
    values = np.r_[-3.0, np.linspace(0, 1, 300), 1.5, 1.4, 1.3]
    A = matrix(values)
    small = eigenpairs(MatrixOperator(A), k=3, tol=1e-7, which=which, max_basis=14, max_products=2000)
    large = eigenpairs(MatrixOperator(A), k=3, tol=1e-7, which=which, max_products=2000)
    check(A, small, large.values, 1e-8)
    assert small.products > 14


def test_whole_spectrum_is_exact():
    A = matrix([3.0, -2.0, 1.0])
    result = eigenpairs(MatrixOperator(A), k=3)
    check(A, result, [3.0, 1.0, -2.0], 1e-13)
    assert result.outcome is Outcome.EXACT


def test_warm_start_saves_products():
    A = matrix(SPECTRUM)
    cold = eigenpairs(MatrixOperator(A), k=5, tol=1e-4, verify=False)
    noise = torch.randn(200, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    nearby = A + 1e-4 * (noise + noise.T)
    warm = eigenpairs(MatrixOperator(nearby), k=5, tol=1e-4, start=cold.vectors, verify=False)
    check(nearby, warm, np.linalg.eigvalsh(nearby.numpy())[::-1][:5], 1e-6)
    again = eigenpairs(MatrixOperator(nearby), k=5, tol=1e-4, verify=False)
    assert warm.products < again.products


@pytest.mark.parametrize("block", [1, 2])
@pytest.mark.parametrize("verify", [None, False])
def test_a_warm_start_at_right_angles_to_what_is_wanted_still_finds_it(block, verify):
    A = matrix(SPECTRUM)
    vectors = torch.linalg.eigh(A)[1].T.flip(0)
    for start, k in ((vectors[1], 1), (vectors[3:6], 2)):
        result = eigenpairs(MatrixOperator(A), k=k, start=start, block=block, verify=verify)
        np.testing.assert_allclose(result.values, SPECTRUM[:k], rtol=1e-3)


def test_copies_are_found_at_defaults():
    for rest in ([5.0, 4.0, 3.0, 2.0], np.linspace(0, 5, 1000)):
        result = eigenpairs(MatrixOperator(torch.diag(torch.tensor([10.0, 10.0, *rest]))), k=2)
        np.testing.assert_allclose(result.values, [10.0, 10.0], rtol=1e-5)
        assert result.verified


def test_the_flat_spectrum_of_weight_decay():
    """Three outliers above a cluster of a thousand copies, and a little below them."""
    values = np.r_[3.0, 2.0, 1.0, np.full(1000, 1e-2), 1e-2 - np.geomspace(1e-7, 1e-3, 40)]
    result = eigenpairs(MatrixOperator(torch.diag(torch.from_numpy(values))), k=5)
    np.testing.assert_allclose(result.values, [3.0, 2.0, 1.0, 1e-2, 1e-2], rtol=1e-5)
    assert result.verified


def test_what_is_not_looked_for_is_not_called_verified():
    values = np.r_[5.0, 5.0, 4.5, np.linspace(0, 4, 300)]
    A = matrix(values)
    assert not eigenpairs(MatrixOperator(A), k=2, verify=False).verified
    assert not eigenpairs(MatrixOperator(A), k=2, verify=True, max_products=30).verified
    assert "verified" in Outcome.CONVERGED.value
    assert eigenpairs(MatrixOperator(A), k=2, verify=True).verified
    large = torch.diag(torch.linspace(0, 1, CHEAP + 1))
    assert not eigenpairs(MatrixOperator(large), k=1, tol=0.1).verified


def test_the_gradient_as_a_hint_saves_products():
    operator = MatrixOperator(matrix(SPECTRUM))
    plain = eigenpairs(operator, k=1, tol=1e-6, verify=False)
    operator.hint = plain.vectors[0] + 0.1 * plain.vectors[0].roll(1)
    assert eigenpairs(operator, k=1, tol=1e-6, verify=False).products < plain.products


def test_a_cheaper_operator_as_start_saves_products():
    A = matrix(SPECTRUM)
    generator = torch.Generator().manual_seed(0)
    other = A + 1e-3 * torch.randn(A.shape, dtype=A.dtype, generator=generator)
    cheaper = MatrixOperator((other + other.T) / 2)
    for k in (1, 3):
        plain = eigenpairs(MatrixOperator(A), k=k, tol=1e-4, verify=False)
        helped = eigenpairs(MatrixOperator(A), k=k, tol=1e-4, verify=False, start=cheaper)
        check(A, helped, SPECTRUM[:k], atol=1e-6)
        assert helped.products < plain.products
    assert cheaper.products > 0
    with pytest.raises(ValueError, match="operator of size 200, got one of size 3"):
        eigenpairs(MatrixOperator(A), start=MatrixOperator(torch.eye(3)))


@pytest.mark.parametrize(
    ("dtype", "exponents"),
    [(torch.float32, (-38, -25, -15, 15, 19, 36)), (torch.float64, (-305, -170, -100, 100, 155, 306))],
)
def test_every_size_that_the_precision_can_hold(dtype, exponents):
    ordinary = torch.diag(torch.arange(1.0, 31, dtype=torch.float64))
    for exponent in exponents:
        A = (ordinary * 10.0**exponent).to(dtype)
        for k in (1, 3):
            result = eigenpairs(MatrixOperator(A), k=k)
            expected = np.array([30.0, 29.0, 28.0])[:k]
            np.testing.assert_allclose(result.values / 10.0**exponent, expected, rtol=1e-5)
            V = result.vectors.double()
            true = V @ (A.double() / 10.0**exponent) - torch.from_numpy(result.values / 10.0**exponent)[:, None] * V
            assert (true.norm(dim=1).numpy() <= result.residuals / 10.0**exponent).all()
            assert result.converged.all()


def test_ordinary_sizes_are_not_scaled():
    A = matrix(SPECTRUM)
    plain, small = eigenpairs(MatrixOperator(A), k=3), eigenpairs(MatrixOperator(A * 2.0**-60), k=3)
    np.testing.assert_array_equal(small.values, plain.values * 2.0**-60)
    assert torch.equal(small.vectors, plain.vectors)
    assert small.products == plain.products + 1  # one to find the scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [3, 500])
def test_a_zero_matrix(size, dtype):
    result = eigenpairs(MatrixOperator(torch.zeros(size, size, dtype=dtype)), k=2)
    assert result.values.tolist() == result.residuals.tolist() == [0.0, 0.0]
    assert result.converged.all()
    assert result.verified


def test_restarts_that_bring_nothing_end():
    """A null space with neighbours down to 1e-6: no small basis resolves it, and 2000 products would not either."""
    A = matrix(np.r_[5.0, 4.0, 3.0, np.zeros(250), -np.geomspace(1e-6, 0.1, 47)])
    result = eigenpairs(MatrixOperator(A), k=5, max_basis=14, max_products=2000)
    assert result.outcome is Outcome.STALLED
    assert "max_basis" in result.outcome.value
    assert result.products < 300
    assert result.converged.tolist() == [True, True, True, False, False]


def test_float32_reports_its_rounding():
    A = matrix(SPECTRUM, dtype=torch.float32)
    fine = eigenpairs(MatrixOperator(A), k=5, tol=1e-3)
    check(A, fine, SPECTRUM[:5], 1e-6)
    tight = eigenpairs(MatrixOperator(A), k=5, tol=1e-12)
    assert tight.outcome is Outcome.NOISE
    assert not tight.converged.any()
    assert tight.residuals.min() > 1e-7


def test_running_out_of_products_is_a_value_with_advice():
    result = eigenpairs(MatrixOperator(matrix(SPECTRUM)), k=5, tol=1e-10, max_products=8)
    assert result.outcome is Outcome.MAX_ITERATIONS
    assert "allow more products" in result.outcome.value
    assert not result.converged.all()
    assert result.products == 8


def test_deterministic_signed_and_seeded():
    A = matrix(SPECTRUM)
    first, second = (eigenpairs(MatrixOperator(A), k=3, seed=1) for _ in range(2))
    assert torch.equal(first.vectors, second.vectors)
    largest = first.vectors.gather(1, first.vectors.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()
    assert not torch.equal(first.vectors, eigenpairs(MatrixOperator(A), k=3, seed=2).vectors)


def test_on_a_network_against_the_dense_hessian():
    case = make("mlp")
    objective = Objective(case.model, case.data, chunk_size=32)
    dense = case.dense_hessian()
    values = torch.linalg.eigvalsh(dense).flip(0).numpy()
    check(dense, eigenpairs(objective.hessian(objective.theta), k=5, tol=1e-9), values[:5])
    both = eigenpairs(objective.hessian(objective.theta), k=4, tol=1e-9, which="both")
    check(dense, both, np.r_[values[:2], values[-2:]])


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(st.floats(-10, 10).map(lambda x: round(x, 3)), min_size=2, max_size=25),
    k=st.integers(1, 4),
    block=st.integers(1, 2),
)
def test_any_spectrum_with_copies(values, k, block):
    k, block = min(k, len(values)), min(block, len(values))
    A = matrix(values)
    result = eigenpairs(MatrixOperator(A), k=k, tol=1e-8, block=block, verify=True, max_products=200)
    np.testing.assert_allclose(result.values, np.linalg.eigvalsh(A.numpy())[::-1][:k], rtol=0, atol=1e-6)


class _Skew(Operator):
    size, dtype, device = 30, torch.float64, torch.device("cpu")

    def __init__(self, skewness):
        noise = torch.randn(30, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        self.A = matrix(SPECTRUM[:30]) + skewness * (noise - noise.T)

    def _product(self, rows):
        return rows @ self.A.T


def test_an_operator_that_is_not_symmetric_is_refused():
    with pytest.raises(ValueError, match="the operator is not symmetric"):
        eigenpairs(_Skew(0.01), k=2)
    assert eigenpairs(_Skew(0.0), k=2).converged.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be a whole number, between 1 and 200; got 0"),
        ({"k": 201}, "between 1 and 200; got 201"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"which": "larges"}, "did you mean 'largest'"),
        ({"start": torch.zeros(3, 7)}, "start must have 200 entries"),
        ({"start": torch.zeros(2, 200)}, "start has a vector of zeros"),
        ({"start": torch.zeros(200)}, "start has a vector of zeros"),
        ({"start": torch.tensor(1.0)}, "start must have 200 entries"),
        ({"start": torch.ones(2, 200)}, "linearly independent"),
        ({"start": torch.full((200,), torch.nan)}, "start has 200 non-finite"),
        ({"max_basis": 3}, "max_basis must be a whole number, at least"),
        ({"block": 0}, "block must be"),
        ({"max_products": 0}, "max_products must be"),
        ({"max_products": 4}, "max_products must be a whole number, at least 5; got 4"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        eigenpairs(MatrixOperator(matrix(SPECTRUM)), **options)


def test_progress_is_reported():
    seen = []
    result = eigenpairs(MatrixOperator(matrix(SPECTRUM)), k=2, progress=lambda done, total: seen.append((done, total)))
    assert seen[:-1] == [(done, 140) for done in range(1, result.products + 1)]
    assert seen[-1] == (result.products, result.products)


@pytest.mark.parametrize(
    ("make_matrix", "message"),
    [
        (lambda: torch.eye(3, dtype=torch.int64), "floating-point numbers, got torch.int64: write matrix.double"),
        (lambda: torch.eye(3, dtype=torch.complex64), "real floating-point numbers, got torch.complex64"),
        (lambda: torch.empty(0, 0), "at least one row"),
        (lambda: torch.eye(3, 4), "must be square"),
    ],
)
def test_matrices_that_are_refused(make_matrix, message):
    with pytest.raises(ValueError, match=message):
        MatrixOperator(make_matrix())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_with_advice(dtype):
    operator = MatrixOperator(matrix(SPECTRUM).to(dtype))
    for measure in (eigenpairs, power_iteration, trace, spectral_density):
        with pytest.raises(ValueError, match=r"cannot be measured in torch\..*dtype=torch.float32"):
            measure(operator)


@pytest.mark.parametrize("matrix", [np.eye(3), torch.eye(3).to_sparse()], ids=["array", "sparse"])
def test_a_matrix_that_is_no_dense_tensor_is_refused(matrix):
    with pytest.raises(ValueError, match="matrix must be a dense tensor, got"):
        MatrixOperator(matrix)


def test_a_count_may_be_a_float_that_is_whole():
    operator = MatrixOperator(torch.diag(torch.tensor([3.0, 2.0, 1.0])))
    for found in (eigenpairs(operator, k=2.0), power_iteration(operator, k=2.0, max_iter=200)):
        assert found.values == pytest.approx([3, 2], rel=1e-2)


@pytest.mark.parametrize("k", [None, "two", 1.5, float("nan"), True])
def test_a_count_that_is_no_whole_number_is_refused(k):
    with pytest.raises(ValueError, match="k must be a whole number, between 1 and 3; got"):
        eigenpairs(MatrixOperator(torch.eye(3)), k=k)


@pytest.mark.parametrize("find", [eigenpairs, power_iteration])
def test_a_matrix_or_an_objective_is_no_operator(find):
    model = torch.nn.Linear(2, 2)
    objective = Objective(model, (torch.ones(3, 2), torch.tensor([0, 1, 0])))
    for given_instead in (objective, torch.eye(3)):
        with pytest.raises(ValueError, match=r"expected an operator, .* write objective.hessian\(theta\)"):
            find(given_instead)
    for theta in (model, model.state_dict(), objective.theta.numpy()):
        with pytest.raises(ValueError, match=r"theta must be a flat tensor .* write objective.flatten\(model\)"):
            objective.hessian(theta)


def test_no_bit_depends_on_free_memory(monkeypatch):
    A = matrix(SPECTRUM)
    found = [eigenpairs(MatrixOperator(A), k=5, tol=1e-9)]
    densities = [spectral_density(MatrixOperator(A), steps=6, probes=3)]
    # nothing is free beyond the reserve, as beside a process that fills the machine
    monkeypatch.setattr(memory, "memory_of", lambda device: Memory(total=2**40, free=2**30))
    found.append(eigenpairs(MatrixOperator(A), k=5, tol=1e-9))
    densities.append(spectral_density(MatrixOperator(A), steps=6, probes=3))
    assert found[0].products == found[1].products
    assert torch.equal(found[0].vectors, found[1].vectors)
    assert np.array_equal(densities[0].nodes, densities[1].nodes)
