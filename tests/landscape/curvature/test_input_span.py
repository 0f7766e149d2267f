"""Curvature of few examples, compressed to the span of a first layer's inputs, against torch's in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from landscape import Objective, eigenpairs
from landscape.curvature import input_span
from landscape.spectrum.lanczos import WHICH

INPUTS, COUNT = 12, 7


@pytest.fixture(autouse=True)
def compress_tiny_networks(monkeypatch):
    monkeypatch.setattr(input_span, "LEAST", 1)


class Twice(nn.Module):
    """Uses the weight of its first layer a second time, to decode."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, 6), nn.Linear(INPUTS, 3)

    def forward(self, x):
        return self.last(torch.tanh(torch.tanh(self.first(x)) @ self.first.weight))


class Inner(nn.Module):
    """Gives its large layer something that depends on parameters."""

    def __init__(self):
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.ones(INPUTS)), nn.Linear(INPUTS, 3)

    def forward(self, x):
        return self.layer(self.scale * x)


def perceptron(first=INPUTS):
    return nn.Sequential(nn.Flatten(), nn.Linear(first, 6), nn.GELU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def make(model, count=COUNT, **settings):
    torch.manual_seed(0)
    model = model.double()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.6)
    inputs, targets = torch.randn(count, 3, INPUTS // 3).double(), torch.arange(count) % 3
    if not isinstance(model, nn.Sequential):
        inputs = inputs.flatten(1)
    return Objective(model, (inputs, targets), **settings), model, inputs, targets


def dense(objective, model, inputs, targets):
    names = [entry.name for entry in objective.layout.entries]

    def loss(theta):
        return functional.cross_entropy(
            torch.func.functional_call(
                model, dict(zip(names, objective.layout.unflatten(theta).values(), strict=True)), (inputs,)
            ),
            targets,
        )

    hessian = torch.func.hessian(loss)(objective.theta)
    return hessian + objective.weight_decay * torch.eye(len(hessian)).double()


@pytest.mark.parametrize("settings", [{}, {"chunk_size": 3}, {"weight_decay": 0.3}, {"memory": 1}], ids=str)
def test_products_are_those_of_the_whole_hessian(settings):
    problem = make(perceptron(), **settings)
    objective, expected = problem[0], dense(*problem)
    operator = objective.hessian(objective.theta)
    smaller = operator.compress()
    assert smaller is not None
    assert smaller.operator.size == objective.size - 6 * (INPUTS - COUNT)
    torch.testing.assert_close(operator.dense(), expected, rtol=0, atol=1e-12)
    hint, inner = operator.hint, smaller.operator.hint
    torch.testing.assert_close(hint + objective.weight_decay * objective.theta, objective.gradient(objective.theta))
    torch.testing.assert_close(smaller.expand(inner), hint, rtol=0, atol=1e-12)
    rows = torch.randn(2, smaller.operator.size).double()
    torch.testing.assert_close(smaller.compress(smaller.expand(rows)), rows, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        smaller.expand(smaller.operator.matmat(rows)), smaller.expand(rows) @ expected, rtol=0, atol=1e-12
    )


def test_gauss_newton_is_compressed_alike(monkeypatch):
    objective = make(perceptron())[0]
    compressed = objective.gauss_newton(objective.theta)
    assert compressed.compress() is not None
    monkeypatch.setattr(input_span, "LEAST", 10**6)
    torch.testing.assert_close(compressed.dense(), objective.gauss_newton(objective.theta).dense(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("k", [1, 4, 90])
def test_eigenpairs_are_those_of_the_whole_hessian(which, k):
    """90 pairs are more than the compressed operator has on one side of zero, so that some are zero."""
    problem = make(perceptron())
    objective, matrix = problem[0], dense(*problem)
    start = torch.randn(objective.size).double()
    found = eigenpairs(objective.hessian(objective.theta), k, tol=1e-9, which=which, start=start, max_products=500)
    values = np.linalg.eigvalsh(matrix.numpy())
    np.testing.assert_allclose(found.values, values[WHICH[which](values, k)], atol=1e-9)
    residuals = matrix @ found.vectors.T - found.vectors.T * torch.tensor(found.values)
    assert float(residuals.norm(dim=0).max()) < 1e-7
    torch.testing.assert_close(found.vectors @ found.vectors.T, torch.eye(k).double(), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (Twice(), {}),
        (Inner(), {}),
        (perceptron(), {"parameters": "[35]*"}),
        (perceptron(), {"count": 40}),
        (nn.Sequential(nn.Flatten(), nn.Linear(INPUTS, 6).requires_grad_(False), nn.Tanh(), nn.Linear(6, 3)), {}),
    ],
    ids=["used twice", "not the first", "chosen parameters", "many examples", "frozen"],
)
def test_what_cannot_be_compressed_is_left_as_it_is(model, settings):
    objective, model, inputs, targets = make(model, **settings)
    operator = objective.hessian(objective.theta)
    assert operator.compress() is None
    if "parameters" not in settings:
        expected = dense(objective, model, inputs, targets)
        torch.testing.assert_close(operator.dense(), expected, rtol=0, atol=1e-12)


def test_engines_agree():
    objective = make(perceptron())[0]
    matrices = [objective.hessian(objective.theta, engine).dense() for engine in ("retained", "recompute", "forward")]
    for matrix in matrices[1:]:
        torch.testing.assert_close(matrix, matrices[0], rtol=0, atol=1e-12)


def test_a_start_outside_the_span_is_no_obstacle():
    problem = make(perceptron())
    objective, matrix = problem[0], dense(*problem)
    operator = objective.hessian(objective.theta)
    span = operator.compress()
    start = torch.randn(objective.size).double()
    start -= span.expand(span.compress(start))
    found = eigenpairs(operator, 1, tol=1e-8, start=start)
    assert found.values[0] == pytest.approx(float(torch.linalg.eigvalsh(matrix)[-1]), rel=1e-9)
