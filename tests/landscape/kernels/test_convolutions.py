"""Convolutions at frequencies against torch's kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from landscape.kernels.convolutions import (
    DirectProducts,
    FourierProducts,
    Geometry,
    _make_fourier,
    choose_products,
    wants_channels_last,
)
from landscape.kernels.derivatives import CheapSecondDerivatives

SHAPES = {  # images, input channels and size; output channels, kernel; padding
    "even": ((3, 2, 8, 6), (4, 3, 3), (0, 0)),
    "odd": ((2, 3, 7, 9), (2, 5, 3), (0, 0)),
    "padded": ((2, 2, 5, 6), (3, 5, 5), (2, 2)),
    "one side": ((4, 1, 6, 5), (2, 3, 2), (1, 0)),
    "pointwise": ((2, 3, 4, 4), (2, 1, 1), (0, 0)),
    "whole image": ((2, 2, 5, 4), (3, 5, 4), (0, 0)),
    "wider than the image": ((2, 2, 3, 3), (2, 5, 5), (2, 2)),
}


def geometry(padding: tuple[int, int] = (0, 0), stride: int = 1, dilation: int = 1, groups: int = 1) -> Geometry:
    return ([stride] * 2, list(padding), [dilation] * 2, False, [0, 0], groups)


@pytest.fixture(params=SHAPES, ids=str)
def both(request: pytest.FixtureRequest) -> tuple[DirectProducts, FourierProducts, Tensor, Tensor]:
    shape, (outputs, *kernel), padding = SHAPES[request.param]
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64)
    w = torch.randn(outputs, shape[1], *kernel, dtype=torch.float64)
    fourier = _make_fourier(tuple(shape[2:]), tuple(kernel), padding, torch.float64)
    return DirectProducts(geometry(padding)), fourier, x, w


def close(found: Tensor | None, expected: Tensor | None) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels last"])
def test_all_products_are_those_of_torch(both, order: torch.memory_format) -> None:
    direct, fourier, x, w = both
    x, bias = x.contiguous(memory_format=order), torch.randn(len(w), dtype=torch.float64)
    other = torch.randn_like(x)
    expected = direct.forward([(x, w), (other, 2 * w)], bias)
    pairs = [
        (fourier.prepare_input(x), fourier.prepare_weight(w)),
        (fourier.prepare_input(other), fourier.prepare_weight(2 * w)),
    ]
    close(fourier.forward(pairs, bias), expected)
    g = torch.randn_like(expected).contiguous(memory_format=order)
    wanted = (True, True, True)
    found = fourier.backward(fourier.prepare_output(g), *pairs[0], wanted)
    for one, other in zip(found, direct.backward(g, x, w, wanted), strict=True):
        close(one, other)
    assert fourier.backward(fourier.prepare_output(g), *pairs[0], (False, False, False)) == (None, None, None)


def test_the_layer_of_the_papers_goes_by_frequencies_and_what_does_not_pay_does_not() -> None:
    x, w = torch.randn(64, 64, 14, 14), torch.randn(64, 64, 5, 5)
    assert isinstance(choose_products(x, w, geometry()), FourierProducts)
    assert isinstance(
        choose_products(torch.randn(64, 3, 32, 32), torch.randn(64, 3, 5, 5), geometry()), DirectProducts
    )  # first layer
    assert isinstance(choose_products(x, torch.randn(64, 64, 1, 1), geometry()), DirectProducts)
    assert isinstance(choose_products(x[:1], w, geometry()), DirectProducts)  # one image cannot pay for the weight
    assert isinstance(choose_products(x, w, geometry(stride=2)), DirectProducts)
    assert isinstance(choose_products(x, w, geometry(dilation=2)), DirectProducts)
    assert isinstance(choose_products(x, w[:, :32], geometry(groups=2)), DirectProducts)
    assert isinstance(choose_products(x.bfloat16(), w.bfloat16(), geometry()), DirectProducts)
    assert wants_channels_last(nn.Sequential(nn.Conv2d(3, 4, 5)))
    assert not wants_channels_last(nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)))
    assert not wants_channels_last(nn.Sequential(nn.Linear(3, 4)))


def test_float32_loses_no_digits() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(64, 64, 14, 14), torch.randn(64, 64, 5, 5)
    exact = DirectProducts(geometry()).forward([(x.double(), w.double())], None)
    chosen = choose_products(x, w, geometry())
    found = chosen.forward([(chosen.prepare_input(x), chosen.prepare_weight(w))], None)
    assert isinstance(chosen, FourierProducts)
    assert float((found - exact).norm() / exact.norm()) < 5e-7


@pytest.mark.parametrize("linear", [False, True])
def test_second_derivatives_of_a_network_at_frequencies(linear: bool) -> None:
    """A product with the Hessian, or with J of the network, by the graph that curvature keeps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 32, 3), nn.Tanh(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.Conv2d(32, 2, 3)).double()
    inputs = torch.randn(32, 2, 14, 14, dtype=torch.float64)
    assert isinstance(
        choose_products(torch.randn(32, 32, 12, 12), model[2].weight.float(), geometry()), FourierProducts
    )
    leaves = list(model.parameters())
    vectors = [torch.randn_like(leaf) for leaf in leaves]

    def product() -> tuple[Tensor, ...]:
        outputs = model(inputs)
        if linear:
            dual = torch.zeros_like(outputs, requires_grad=True)
            pulled = torch.autograd.grad(outputs, leaves, dual, create_graph=True)
            return torch.autograd.grad(pulled, dual, vectors)
        gradient = torch.autograd.grad(torch.tanh(outputs).square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(gradient, leaves, vectors)

    expected = product()
    with CheapSecondDerivatives(linear=linear):
        found = product()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11 * float(other.abs().max()))


def test_another_default_device_does_not_matter() -> None:
    x, w = torch.randn(16, 40, 13, 13), torch.randn(40, 40, 5, 5)
    with torch.device("meta"):
        chosen = choose_products(x, w, geometry())
    assert isinstance(chosen, FourierProducts)
    found = chosen.forward([(chosen.prepare_input(x), chosen.prepare_weight(w))], None)
    torch.testing.assert_close(found, torch.conv2d(x, w), rtol=1e-4, atol=1e-4)
