"""Hessian and Gauss-Newton products against closed forms and dense second derivatives in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import nn
from torch.nn import functional

from landscape import Objective, eigenpairs, line, plane, power_iteration, spectral_density, trace
from landscape.curvature.products import ENGINES
from landscape.operators import MatrixOperator, RescaledOperator, ShiftedOperator, SumOperator
from tests.landscape.cases import CASES, make


def close(actual, expected, atol=1e-12):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def test_linear_regression_by_hand():
    """L = mean over n examples and m outputs of (Wx + b - y)^2: H = 2 / (n m) * sum of [x; 1][x; 1]' per output."""
    case = make("regression")
    X = torch.cat([case.inputs, torch.ones(23, 1).double()], dim=1)
    block = 2 / (23 * 2) * X.T @ X
    expected = torch.zeros(10, 10).double()
    for output in range(2):  # flat order: W row by row, then b
        places = torch.tensor([4 * output, 4 * output + 1, 4 * output + 2, 4 * output + 3, 8 + output])
        expected[places[:, None], places] = block
    objective = Objective(case.model, case.data, case.loss, chunk_size=4)
    close(objective.hessian(objective.theta).dense(), expected)
    close(objective.gauss_newton(objective.theta).dense(), expected)


def test_softmax_regression_by_hand():
    """H = mean of (diag(p) - p p') kron x x', and equals its Gauss-Newton matrix."""
    case = make("softmax_regression")
    p = torch.softmax(case.inputs @ case.model.weight.detach().T, dim=1)
    expected = sum(
        torch.kron(torch.diag(q) - torch.outer(q, q), torch.outer(x, x)) for q, x in zip(p, case.inputs, strict=True)
    ) / len(p)
    objective = Objective(case.model, case.data, chunk_size=8)
    close(objective.hessian(objective.theta).dense(), expected)
    close(objective.gauss_newton(objective.theta).dense(), expected)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_equals_the_dense_hessian(name, engine):
    case = make(name)
    objective = Objective(case.model, case.data, case.loss, chunk_size=4)
    operator = objective.hessian(objective.theta, engine)
    close(operator.dense(), case.dense_hessian())
    assert operator.products == objective.size


@pytest.mark.parametrize("budget", [1, 6_000, "1G"])
def test_memory_budget_decides_what_is_kept_not_what_comes_out(budget):
    case = make("mlp")
    objective = Objective(case.model, case.data, chunk_size=8, memory=budget)
    operator = objective.hessian(objective.theta)
    assert operator.graph_bytes <= objective.memory
    kept = {1: 0, "1G": 9}.get(budget)
    assert len(operator._kept) == kept if kept is not None else 0 < len(operator._kept) < 9
    assert operator.engine == ("retained" if budget == "1G" else operator.engine)
    close(operator.dense(), case.dense_hessian())


@pytest.mark.parametrize("name", ["mlp", "convolution", "attention", "recurrent", "tied"])
def test_gauss_newton_equals_the_dense_product(name):
    case = make(name)
    objective = Objective(case.model, case.data, chunk_size=4)
    theta = case.theta()
    names = [n for n, p in case.model.named_parameters() if p.requires_grad]
    shapes = [p.shape for p in case.parameters()]

    def outputs(vector):
        parts = torch.split(vector, [shape.numel() for shape in shapes])
        tensors = {n: part.reshape(shape) for n, part, shape in zip(names, parts, shapes, strict=True)}
        return torch.func.functional_call(case.model, tensors, (case.inputs,))

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        J = torch.autograd.functional.jacobian(outputs, theta)  # (n, classes, size)
    p = torch.softmax(outputs(theta), dim=1).detach()
    inner = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    expected = torch.einsum("nai,nab,nbj->ij", J, inner, J) / len(p)
    close(objective.gauss_newton(theta).dense(), expected)


@pytest.mark.parametrize("name", CASES)
def test_symmetric_linear_and_the_second_derivative_along_a_line(name):
    case = make(name)
    objective = Objective(case.model, case.data, case.loss, chunk_size=4)
    H = objective.hessian(objective.theta)
    generator = torch.Generator().manual_seed(0)
    u, v = torch.randn(2, objective.size, dtype=torch.float64, generator=generator)
    assert float(u @ H.matvec(v)) == pytest.approx(float(v @ H.matvec(u)), abs=1e-11)
    close(H.matvec(2 * u - 3 * v), 2 * H.matvec(u) - 3 * H.matvec(v), 1e-11)
    close(H @ torch.stack([u, v], dim=1), H.matmat(torch.stack([u, v])).T)
    v = v / v.norm()
    h = 1e-4  # balances h^2 truncation and 1e-16 / h^2 rounding
    left, middle, right = (objective.loss(objective.theta + step * v) for step in (-h, 0.0, h))
    assert (left - 2 * middle + right) / h**2 == pytest.approx(float(v @ H.matvec(v)), abs=2e-6)


def test_chunk_size_and_order_do_not_matter():
    case = make("mlp")
    order = torch.randperm(70, generator=torch.Generator().manual_seed(0))
    reference = Objective(case.model, case.data, chunk_size=70).hessian(case.theta()).dense()
    for size in (1, 13, 32):
        close(Objective(case.model, case.data, chunk_size=size).hessian(case.theta()).dense(), reference)
    shuffled = Objective(case.model, (case.inputs[order], case.targets[order]), chunk_size=32)
    close(shuffled.hessian(case.theta()).dense(), reference)


def test_weight_decay_shifts_the_spectrum_by_exactly_itself():
    case = make("mlp")
    plain, decayed = (Objective(case.model, case.data, weight_decay=wd).hessian(case.theta()) for wd in (0.0, 0.25))
    close(decayed.dense(), plain.dense() + 0.25 * torch.eye(plain.size).double())
    close(ShiftedOperator(plain, 0.25).dense(), decayed.dense())


def test_the_global_hessian_is_the_weighted_sum_of_the_clients():
    case = make("convolution")
    sizes = [5, 11, 21]
    clients = [
        Objective(case.model, data) for data in zip(case.inputs.split(sizes), case.targets.split(sizes), strict=True)
    ]
    theta = case.theta()
    parts = [client.hessian(theta) for client in clients]
    total = SumOperator(parts, [size / 37 for size in sizes])
    close(total.dense(), case.dense_hessian())
    bound = sum(size / 37 * torch.linalg.eigvalsh(part.dense())[-1] for size, part in zip(sizes, parts, strict=True))
    assert torch.linalg.eigvalsh(total.dense())[-1] <= bound
    gradient = sum(size / 37 * client.gradient(theta) for size, client in zip(sizes, clients, strict=True))
    close(total.hint, gradient)


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_clients_side_by_side_give_the_same_bits(name):
    """And leave torch's choice of kernels as they found it."""
    case = make(name)
    X, y = case.data
    found = []
    for workers in (1, 2):
        whole = Objective(case.model, case.data, case.loss, workers=workers)
        parts = [whole.on(X[i::3], y[i::3]).hessian(whole.theta) for i in range(3)]
        found.append(SumOperator(parts, [0.5, 0.25, 0.25]).matmat(torch.stack([whole.theta, whole.theta**2])))
    assert torch.equal(*found)
    assert torch.backends.cuda.flash_sdp_enabled()


def test_parameter_selection_gives_a_diagonal_block():
    case = make("mlp")
    head = Objective(case.model, case.data, parameters="2.*")
    close(head.hessian(head.theta).dense(), case.dense_hessian()[-21:, -21:])


def test_statistics_in_the_vector_have_no_curvature():
    case = make("convolution")
    moving = Objective(case.model, case.data, batchnorm="interpolated", chunk_size=8)
    H = moving.hessian(moving.theta)
    assert (H.size, H.dimension) == (moving.size, moving.size - 6)
    close(H.dense(), case.dense_hessian())
    assert H.matmat(torch.eye(H.size, dtype=H.dtype))[-6:].abs().max() == 0


def test_everything_agrees_that_only_parameters_have_curvature():
    """With weight decay a running statistic would add the eigenvalue 0 below the parameters' own."""
    case = make("convolution")
    still = Objective(case.model, case.data, weight_decay=1.0)
    moving = Objective(case.model, case.data, batchnorm="interpolated", weight_decay=1.0)
    H, M = still.hessian(still.theta), moving.hessian(moving.theta)
    end, truth = H.size, np.linalg.eigvalsh(H.dense().numpy())
    assert truth[0] > 0.1
    for which, expected in {"largest": truth[:-3:-1], "smallest": truth[1::-1], "both": truth[[-1, 0]]}.items():
        wide = eigenpairs(M, k=2, which=which)
        np.testing.assert_allclose(wide.values, expected, rtol=2e-3)
        assert wide.vectors.shape == (2, moving.size)
        assert float(wide.vectors[:, end:].abs().max()) == 0.0
    for published in (False, True):
        wide = power_iteration(M, k=1, max_iter=40, as_published=published)
        assert wide.values[0] == pytest.approx(truth[-1], rel=0.02)
        assert float(wide.vectors[:, end:].abs().max()) == 0.0
    estimate = trace(M, probes=40)
    assert abs(estimate.value - truth.sum()) < 4 * estimate.standard_error
    density = spectral_density(M, steps=20, probes=2)
    assert density.size == end
    assert density.extremes[0] > 0.1
    scipy = eigsh(M.to_scipy(), k=1, which="SA", tol=1e-3, return_eigenvectors=False)
    assert scipy[0] == pytest.approx(truth[0], rel=1e-2)
    with pytest.raises(ValueError, match=f"k must be a whole number, between 1 and {end}"):
        eigenpairs(M, k=end + 1)


def test_eigenvectors_are_directions_of_an_objective_with_statistics():
    case = make("convolution")
    moving = Objective(case.model, case.data, batchnorm="interpolated")
    pairs = eigenpairs(moving.hessian(moving.theta), k=2, tol=1e-8)
    step = 1e-3
    around = line(moving, moving.theta, pairs.vectors[0], extent=step, steps=3).loss
    second = (around[0] - 2 * around[1] + around[2]) / step**2
    assert second == pytest.approx(pairs.values[0], rel=1e-4)
    assert plane(moving, moving.theta, *pairs.vectors, extent=0.1, steps=3).done.all()
    warm = eigenpairs(moving.hessian(moving.theta), k=2, start=pairs.vectors)
    np.testing.assert_allclose(warm.values, pairs.values, rtol=1e-3)


@pytest.mark.parametrize("engine", ["auto", "recompute", "forward", "gauss_newton"])
@pytest.mark.parametrize("margin", [1, 31, 38, 45, 52, 80, 110])
def test_a_float32_model_that_fits_its_data_keeps_its_curvature(engine, margin):
    """Softmax regression on two classes: H = mean of p (1 - p) x x' for both blocks, with the signs (1, -1; -1, 1)."""
    x = torch.tensor([[1.0, 0.5, -0.25], [0.5, -1.0, 0.75]])
    y = torch.tensor([0, 1])
    model = nn.Linear(3, 2, bias=False)
    towards = torch.linalg.lstsq(x, torch.tensor([[1.0, 0.0], [0.0, 1.0]])).solution.T
    with torch.no_grad():
        model.weight.copy_(margin / 2 * (towards - towards.flip(0)))
    logits = (x.double() @ model.weight.detach().double().T).numpy()
    gap = np.abs(logits[:, 0] - logits[:, 1])
    curvature = np.exp(-gap) / (1 + np.exp(-gap)) ** 2
    block = np.einsum("i,ij,ik->jk", curvature, x.double().numpy(), x.double().numpy()) / 2
    expected = 2 * np.linalg.eigvalsh(block)[-1]
    objective = Objective(model, (x, y))
    exact = engine == "gauss_newton"
    H = objective.gauss_newton(objective.theta) if exact else objective.hessian(objective.theta, engine=engine)
    assert eigenpairs(H, k=1).values[0] == pytest.approx(expected, rel=1e-4)
    assert power_iteration(H, max_iter=50).values[0] == pytest.approx(expected, rel=1e-3)
    assert spectral_density(H, probes=1).extremes[1] == pytest.approx(expected, rel=1e-4)


def test_float32_is_near_float64():
    case = make("convolution")
    single = Objective(case.model, case.data, dtype=torch.float32)
    v = torch.randn(single.size, generator=torch.Generator().manual_seed(0))
    product = single.hessian(single.theta).matvec(v)
    assert product.dtype == torch.float32
    torch.testing.assert_close(product.double(), case.dense_hessian() @ v.double(), rtol=1e-4, atol=1e-5)


def test_a_network_that_fits_its_data_has_a_symmetric_hessian_in_float32():
    """Probabilities 1 - 1e-8 are rounded to 1 in float32: the loss must not be taken there."""
    torch.manual_seed(0)
    X = torch.randn(60, 6)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    with torch.no_grad():
        model[2].weight *= 60
        best = model(X).topk(2, dim=1)
    sure = best.values[:, 0] - best.values[:, 1] > 12
    data = X[sure], best.indices[sure, 0]
    single, double = Objective(model, data), Objective(model, data, dtype=torch.float64)
    assert 0 < double.loss(double.theta) < 1e-6
    top = eigenpairs(single.hessian(single.theta), k=2)
    truth = eigenpairs(double.hessian(double.theta), k=2, tol=1e-8)
    np.testing.assert_allclose(top.values, truth.values, rtol=1e-3)


def test_retained_graphs_survive_other_work_on_the_same_objective():
    case = make("convolution")
    objective = Objective(case.model, case.data, chunk_size=8)
    H = objective.hessian(objective.theta)
    expected = H.matvec(objective.theta)
    objective.gradient(objective.theta + 1)
    list(objective.evaluate_each([lambda out: out.fill_(0.5)]))
    objective.hessian(objective.theta * 2).matvec(objective.theta)
    assert torch.equal(H.matvec(objective.theta), expected)


def test_rescaled_operator():
    A = torch.tensor([[2.0, 1.0], [1.0, -3.0]]).double()
    scale = torch.tensor([2.0, 5.0]).double()
    close(RescaledOperator(MatrixOperator(A), scale).dense(), torch.diag(scale) @ A @ torch.diag(scale))


def test_bad_input():
    case = make("mlp")
    objective = Objective(case.model, case.data)
    with pytest.raises(ValueError, match="engine: unknown 'retain'; did you mean 'retained'"):
        objective.hessian(objective.theta, engine="retain")
    H = objective.hessian(objective.theta)
    with pytest.raises(ValueError, match=r"vector must have shape \(57,\), got \(56,\)"):
        H.matvec(torch.zeros(56))
    with pytest.raises(ValueError, match=r"rows must have shape \(count, 57\)"):
        H.matmat(torch.zeros(57))
    with pytest.raises(ValueError, match="theta has 57 non-finite"):
        objective.hessian(objective.theta * torch.nan)
    with pytest.raises(ValueError, match="the loss is inf at this theta"):
        objective.hessian(objective.theta * 1e308)
    with pytest.raises(ValueError, match="matrix must be symmetric"):
        MatrixOperator(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="one size, got"):
        SumOperator([MatrixOperator(torch.eye(2)), MatrixOperator(torch.eye(3))])
    with pytest.raises(ValueError, match="one weight per operator"):
        SumOperator([MatrixOperator(torch.eye(2))], [0.5, 0.5])


def test_a_loss_without_curvature_gives_zero():
    model = nn.Linear(3, 1, bias=False).double()
    X, y = torch.randn(5, 3).double(), torch.zeros(5, 1).double()
    objective = Objective(model, (X, y), lambda outputs, targets: outputs.sum(1))
    assert objective.hessian(objective.theta).dense().abs().max() == 0
    with_attention = Objective(model, (X, y), functional.mse_loss)
    assert with_attention.hessian(objective.theta).dense().abs().max() > 0
