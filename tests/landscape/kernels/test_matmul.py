"""Products of matrices by oneDNN: the same numbers as torch's own, first and second derivatives included."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from landscape.kernels import matmul
from landscape.kernels.matmul import LargeProducts, is_large, multiply, multiply_transposed

LARGE, SMALL = (300, 200, 100), (30, 20, 10)  # rows, columns of x, rows of w: above and below the limit


def make(shape: tuple[int, int, int], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    m, k, n = shape
    return tuple(torch.randn(*one, generator=generator, dtype=dtype) for one in ((m, k), (n, k), (n,)))  # type: ignore[return-value]


def test_what_is_large() -> None:
    assert is_large(*make(LARGE)[:2])
    assert not is_large(*make(SMALL)[:2])
    assert not is_large(*make(LARGE, torch.float64)[:2])


@pytest.mark.skipif(not matmul.has_operation(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("adds", [False, True])
def test_products_are_those_of_float64(shape: tuple[int, int, int], biased: bool, adds: bool) -> None:
    x, w, bias = make(shape)
    added = torch.full((len(x), len(w)), 3.0) if adds else None
    wanted = x.double() @ w.double().T + (bias if biased else 0.0) + (3.0 if adds else 0.0)
    found = multiply(x, w, bias if biased else None, added)
    assert (found - wanted).abs().max() < 1e-4
    transposed = multiply(x.T.contiguous().T, w.T.contiguous().T, bias if biased else None)
    assert (transposed - (wanted - (3.0 if adds else 0.0))).abs().max() < 1e-4


def test_transposed_products_in_both_orders() -> None:
    x, *_ = make(LARGE)
    rows = torch.randn(len(x), 400, generator=torch.Generator().manual_seed(1))
    for one, other in ((x, rows), (rows, x)):
        assert (multiply_transposed(one, other) - one.double().T @ other.double()).abs().max() < 1e-3
    assert multiply_transposed(x, rows).shape == (200, 400)


def test_the_same_product_has_the_same_bits() -> None:
    x, w, bias = make(LARGE)
    assert torch.equal(multiply(x, w, bias), multiply(x.clone(), w.clone(), bias.clone()))


@pytest.mark.parametrize("shape", [(300, 200), (6, 50, 200)])
def test_gradients_of_linear_layers(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Tensor] = []
    own = matmul.multiply

    def count(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        counted.append(x)
        return own(x, w, bias)

    monkeypatch.setattr(matmul, "multiply", count)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(*shape, generator=generator, requires_grad=True)
    _, w, bias = (one.requires_grad_() for one in make(LARGE))

    def differentiate(x: Tensor, w: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        y = functional.linear(x, w, bias).tanh().square().sum()
        return (y, *torch.autograd.grad(y, (x, w, bias)))

    exact = differentiate(*(one.detach().double().requires_grad_() for one in (x, w, bias)))
    with LargeProducts():
        found = differentiate(x, w, bias)
    assert len(counted) == 3  # the layer and its gradients by input and weight
    for one, other in zip(found, exact, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


def test_gradients_can_be_differentiated_again() -> None:
    x, w, bias = (one.requires_grad_() for one in make(LARGE))

    def differentiate_twice() -> tuple[Tensor, ...]:
        y = functional.linear(x, w, bias).tanh().sum()
        slope = torch.autograd.grad(y, (x, w), create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in slope), (x, w, bias))  # type: ignore[arg-type]

    plain = differentiate_twice()
    with LargeProducts():
        fast = differentiate_twice()
    for one, other in zip(fast, plain, strict=True):
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()


def test_small_layers_keep_torchs_bits() -> None:
    x, w, bias = make(SMALL)
    with LargeProducts():
        assert torch.equal(functional.linear(x, w, bias), torch.addmm(bias, x, w.T))
