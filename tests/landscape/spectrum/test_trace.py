"""Traces against dense matrices: exact where theory says exact, within their own standard errors elsewhere."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn import functional

from landscape import Objective
from landscape.layout import Layout
from landscape.operators import MatrixOperator, Operator, ShiftedOperator, SumOperator
from landscape.spectrum.trace import trace


def symmetric(size: int, seed: int) -> Tensor:
    matrix = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return matrix + matrix.T


def low_rank(size: int, rank: int, seed: int) -> Tensor:
    factor = torch.randn(size, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return factor @ torch.diag((-1.0) ** torch.arange(rank, dtype=torch.float64)) @ factor.T


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def examples(count: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(count, 3, dtype=torch.float64, generator=generator), torch.arange(count) % 3


def dense_hessian(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """By torch.func over named parameters: none of the code under test."""
    named = {name: tensor.detach() for name, tensor in model.named_parameters()}
    sizes = [tensor.numel() for tensor in named.values()]

    def loss(flat: Tensor) -> Tensor:
        parts = {name: part.view(old.shape) for (name, old), part in zip(named.items(), flat.split(sizes), strict=True)}
        return functional.cross_entropy(functional_call(model, parts, (inputs,)), targets)

    return hessian(loss, torch.cat([tensor.reshape(-1) for tensor in named.values()]))


class Spy(Operator):
    """Remembers how many rows came at once."""

    def __init__(self, matrix: Tensor):
        self.inner = MatrixOperator(matrix)
        self.size, self.dtype, self.device = self.inner.size, self.inner.dtype, self.inner.device
        self.blocks: list[int] = []

    def _product(self, rows: Tensor) -> Tensor:
        self.blocks.append(len(rows))
        return self.inner.matmat(rows)


def test_signs_are_exact_for_a_diagonal_matrix() -> None:
    diagonal = torch.tensor([3.0, -5.0, 0.25, 7.0, -1.0], dtype=torch.float64)
    answer = trace(MatrixOperator(torch.diag(diagonal)), probes=3)
    assert answer.value == pytest.approx(4.25, abs=1e-14)
    assert answer.standard_error == pytest.approx(0, abs=1e-14)
    assert answer.layers == {}


def test_one_probe_has_no_standard_error() -> None:
    answer = trace(MatrixOperator(symmetric(6, 0)), probes=1)
    assert math.isfinite(answer.value)
    assert math.isnan(answer.standard_error)
    assert answer.products == 1


def test_variance_of_one_sample_is_twice_the_off_diagonal_square() -> None:
    matrix = symmetric(9, 1)
    probes = 4000
    answer = trace(MatrixOperator(matrix), probes=probes)
    expected = 2 * float((matrix**2).sum() - (matrix.diagonal() ** 2).sum())
    # a sample variance of 4000 is good to about 3 %
    assert answer.standard_error**2 * probes == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
def test_standard_errors_are_calibrated_over_seeds(method: str) -> None:
    matrix = symmetric(40, 2)
    operator = MatrixOperator(matrix)
    answers = [trace(operator, probes=60, method=method, seed=seed) for seed in range(200)]
    scores = np.array([(answer.value - float(matrix.trace())) / answer.standard_error for answer in answers])
    assert abs(scores.mean()) < 4 / np.sqrt(200)
    assert 0.85 < scores.std() < 1.25  # Student's t with 19 or 59 degrees of freedom: 1.06 or 1.02


@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
def test_layer_traces_agree_with_dense_blocks(method: str) -> None:
    model, data = network(), examples()
    H = dense_hessian(model, *data)
    operator = Objective(model, data, chunk_size=4).hessian(Layout.of(model).flatten(model))
    answer = trace(operator, probes=300, method=method)
    blocks = {"0": H[:16, :16].trace(), "2": H[16:, 16:].trace()}
    assert list(answer.layers) == ["0", "2"]
    for layer, exact in blocks.items():
        value, error = answer.layers[layer]
        assert abs(value - float(exact)) < 4 * error + 1e-12
        assert error < 0.2 * float(H.trace().abs())
    assert sum(value for value, _ in answer.layers.values()) == pytest.approx(answer.value, rel=1e-12)


def test_layer_traces_of_hutch_plus_plus_are_unbiased() -> None:
    """One eigenvector in each layer: a basis vector mixes them, and terms left out have one sign in each layer."""
    matrix = torch.zeros(35, 35, dtype=torch.float64)
    matrix[:16, :16], matrix[16:, 16:] = 10 * torch.ones(16, 16) / 16, -5 * torch.ones(19, 19) / 19
    operator = MatrixOperator(matrix)
    operator.layout = Layout.of(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Linear(1, 2)))
    found = [trace(operator, probes=4, method="hutch++", seed=seed).layers for seed in range(600)]
    for layer, exact in (("0", 10.0), ("2", -5.0 * 15 / 19)):
        values = np.array([layers[layer][0] for layers in found])
        assert abs(values.mean() - exact) < 4 * values.std(ddof=1) / np.sqrt(600)
        assert values.std() > 0.1  # otherwise the line above proves nothing


def test_hutch_plus_plus_is_exact_for_low_rank() -> None:
    model = network()
    matrix = low_rank(31, 4, 4)
    operator = MatrixOperator(matrix)
    operator.layout = Layout.of(model)
    answer = trace(operator, probes=15, method="hutch++")
    assert answer.value == pytest.approx(float(matrix.trace()), rel=1e-11)
    assert answer.standard_error < 1e-10
    assert answer.layers["2"][0] == pytest.approx(float(matrix[16:, 16:].trace()), rel=1e-10)
    assert answer.products == 15
    assert trace(operator, probes=15).standard_error > 0.1


@pytest.mark.parametrize("probes", [3, 50])
def test_hutch_plus_plus_on_fewer_dimensions_than_probes(probes: int) -> None:
    answer = trace(MatrixOperator(torch.tensor([[2.5]], dtype=torch.float64)), probes=probes, method="hutch++")
    assert answer.value == pytest.approx(2.5, rel=1e-14)
    assert trace(MatrixOperator(torch.zeros(4, 4)), probes=probes, method="hutch++").value == 0


def test_target_stops_early_but_never_before_eight_samples() -> None:
    operator = MatrixOperator(symmetric(30, 5))
    full = trace(operator, probes=2000)
    target = full.standard_error * 4  # reached after about 2000 / 16 samples
    answer = trace(operator, probes=2000, target=target)
    assert answer.standard_error <= target
    assert 60 < answer.products < 250
    diagonal = MatrixOperator(torch.diag(torch.arange(5.0)))
    assert trace(diagonal, probes=100, target=1e-9).products == 8
    assert trace(operator, probes=21, target=1e-9).products == 21
    assert trace(operator, probes=5, target=1e9).products == 5


def test_products_come_in_blocks_of_at_most_eight() -> None:
    spy = Spy(symmetric(7, 6))
    calls: list[tuple[int, int]] = []
    trace(spy, probes=19, progress=lambda done, total: calls.append((done, total)))
    assert spy.blocks == [8, 8, 3]
    assert calls == [(8, 19), (16, 19), (19, 19)]
    spy.blocks.clear()
    assert trace(spy, probes=19, method="hutch++").products == 19 == sum(spy.blocks)
    assert max(spy.blocks) <= 8


def test_same_seed_same_bits() -> None:
    operator = MatrixOperator(symmetric(12, 7))
    assert trace(operator, probes=10, seed=3) == trace(operator, probes=10, seed=3)
    assert trace(operator, probes=10, seed=3) != trace(operator, probes=10, seed=4)


def test_trace_is_additive_over_clients_with_the_same_probes() -> None:
    parts = [MatrixOperator(symmetric(10, seed)) for seed in (8, 9, 10)]
    weights = [0.2, 0.5, 0.3]
    total = trace(SumOperator(parts, weights), probes=9).value
    assert total == pytest.approx(sum(w * trace(p, probes=9).value for w, p in zip(weights, parts, strict=True)))


def test_running_statistics_do_not_count() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)).double()
    objective = Objective(model, examples(), batchnorm="interpolated")
    operator = objective.hessian(objective.theta)
    parameters = sum(tensor.numel() for tensor in model.parameters())
    assert operator.size == parameters + 8
    plain, shifted = trace(operator, probes=6), trace(ShiftedOperator(operator, 2.0), probes=6)
    assert shifted.value - plain.value == pytest.approx(2 * parameters, rel=1e-12)
    assert list(plain.layers) == ["0", "1", "3"]


def test_single_precision_agrees_with_double() -> None:
    model, data = network(2), examples()
    exact = float(dense_hessian(model, *data).trace())
    objective = Objective(model.float(), data, dtype=torch.float32)
    answer = trace(objective.hessian(objective.theta), probes=64, method="hutch++")
    assert abs(answer.value - exact) < 4 * answer.standard_error + 1e-5 * abs(exact)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "hutchinsen"}, "did you mean 'hutchinson'"),
        ({"probes": 0}, "probes must be a whole number, at least 1; got 0"),
        ({"probes": 2, "method": "hutch++"}, r"hutch\+\+ needs probes of at least 3.*got 2"),
        ({"target": 0.0}, "target must be positive and finite, got 0.0"),
        ({"target": -1.0}, "target must be positive"),
    ],
)
def test_bad_input_is_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trace(MatrixOperator(symmetric(4, 0)), **options)


@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
@pytest.mark.parametrize(
    ("dtype", "exponent"), [(torch.float32, -36), (torch.float32, 35), (torch.float64, -300), (torch.float64, 300)]
)
def test_every_size_that_the_precision_can_hold(method, dtype, exponent):
    noise = torch.randn(40, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A = (noise + noise.T + 10 * torch.eye(40)).double()
    plain = trace(MatrixOperator(A), probes=60, method=method)
    scaled = trace(MatrixOperator((A * 10.0**exponent).to(dtype)), probes=60, method=method)
    assert scaled.value / 10.0**exponent == pytest.approx(plain.value, rel=1e-5)
    assert scaled.standard_error / 10.0**exponent == pytest.approx(plain.standard_error, rel=1e-3)
    goal = 2 * plain.standard_error
    early = trace(MatrixOperator((A * 10.0**exponent).to(dtype)), method=method, target=goal * 10.0**exponent)
    assert early.standard_error <= goal * 10.0**exponent
