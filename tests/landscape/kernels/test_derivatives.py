"""The cheap second derivatives against PyTorch's own, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape.kernels.derivatives import REPLACEMENTS, CheapSecondDerivatives
from landscape.kernels.layers import find_used_rows


class Attention(nn.Module):
    """Two heads of width 3 on tokens of width 6; `settings` are those of torch's function."""

    def __init__(self, **settings):
        super().__init__()
        self.joint, self.out, self.settings = nn.Linear(6, 18), nn.Linear(6, 4), settings

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.joint(x).unflatten(-1, (3, 2, 3)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, **self.settings)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Reading(nn.Module):
    """Attention without heads: fixed queries read from other tokens, whose values are wider than their keys."""

    def __init__(self):
        super().__init__()
        self.keys, self.values = nn.Linear(6, 3), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(x[:, :2, :3], self.keys(x), self.values(x))


class FirstToken(nn.Module):
    """Forgets all tokens but the first."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def at_rest(*layers: nn.Module) -> nn.Module:
    """Layers in eval mode, BatchNorm with statistics that are not those of its start."""
    model = nn.Sequential(*layers).eval()
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.copy_(torch.linspace(0.5, 2.0, len(buffer)))
    return model


SEEN = torch.tensor([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 0], [1, 1, 0, 0, 1]]).bool()
CASES = {
    "plain": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)), (5, 3, 8, 8)),
    "no bias": (nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Tanh(), nn.Conv2d(4, 2, 1, bias=False)), (5, 3, 6, 6)),
    "stride": (
        nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Tanh(), nn.Conv2d(4, 2, (3, 1))),
        (2, 3, 9, 9),
    ),
    "dilation": (
        nn.Sequential(nn.Conv2d(3, 4, 3, dilation=2), nn.Tanh(), nn.Conv2d(4, 2, 2, dilation=(1, 2))),
        (2, 3, 9, 9),
    ),
    "groups": (nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.Tanh(), nn.Conv2d(8, 8, 3, groups=8)), (2, 4, 8, 8)),
    "same": (nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.Tanh(), nn.Conv2d(4, 2, 3)), (2, 3, 6, 6)),
    "one dimension": (nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 2, 3, padding=1)), (5, 3, 9)),
    "three dimensions": (nn.Sequential(nn.Conv3d(2, 3, 2), nn.ReLU(), nn.Conv3d(3, 2, 2)), (2, 2, 5, 5, 5)),
    "pool": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 2, 2)), (3, 3, 8, 8)),
    "pool overlapping": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Tanh(), nn.Conv2d(4, 2, 2)),
        (3, 3, 8, 8),
    ),
    "in place": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3)), (3, 3, 8, 8)),
    "frozen first": (
        nn.Sequential(nn.Conv2d(3, 4, 3).requires_grad_(False), nn.ReLU(), nn.Conv2d(4, 2, 3)),
        (3, 3, 8, 8),
    ),
    "batch norm": (
        at_rest(nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 2)),
        (5, 3, 8, 8),
    ),
    "batch norm after a bias": (
        at_rest(nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8, eps=0.1), nn.Tanh(), nn.Conv2d(8, 2, 2)),
        (5, 4, 8, 8),
    ),
    "batch norm without weights": (
        at_rest(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4, affine=False), nn.Tanh(), nn.Conv1d(4, 2, 2)),
        (5, 3, 8),
    ),
    "batch norm, frozen": (
        at_rest(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).requires_grad_(False), nn.Tanh(), nn.Conv2d(4, 2, 2)),
        (5, 3, 6, 6),
    ),
    "batch norm before": (
        at_rest(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 2)),
        (5, 3, 6, 6),
    ),
    "batch norm of the batch": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 2, 2)),
        (5, 3, 6, 6),
    ),
    "linear": (nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 3)), (5, 6)),
    "linear of tokens": (nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4, bias=False)), (5, 3, 6)),
    "linear frozen": (
        nn.Sequential(nn.Linear(6, 5).requires_grad_(False), nn.GELU(), nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 3)),
        (5, 6),
    ),
    "gelu by tanh": (nn.Sequential(nn.Linear(6, 5), nn.GELU(approximate="tanh"), nn.Linear(5, 4)), (5, 6)),
    "layer norm": (
        nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 4), nn.LayerNorm(4, eps=0.1)),
        (5, 3, 6),
    ),
    "layer norm of the inputs": (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4), nn.Tanh()), (5, 6)),
    "layer norm without bias": (nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5, bias=False), nn.Linear(5, 4)), (5, 6)),
    "layer norm of two axes": (nn.Sequential(nn.Linear(6, 5), nn.LayerNorm([3, 5]), nn.Linear(5, 4)), (5, 3, 6)),
    "attention": (Attention(), (3, 5, 6)),
    "attention, causal": (Attention(is_causal=True), (3, 5, 6)),
    "attention, scaled": (Attention(scale=0.3), (3, 5, 6)),
    "attention, masked": (Attention(attn_mask=SEEN), (3, 5, 6)),  # one row completely
    "attention, added to": (Attention(attn_mask=torch.linspace(-1, 1, 25, dtype=torch.float64).view(5, 5)), (3, 5, 6)),
    "attention, fixed queries": (Reading(), (3, 5, 6)),
    "first of many tokens": (
        nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 6), nn.LayerNorm(6), FirstToken(), nn.Linear(6, 3)),
        (3, 5, 6),
    ),
    "frozen last": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3).requires_grad_(False)),
        (3, 3, 8, 8),
    ),
}


@pytest.fixture(autouse=True)
def attention_that_can_be_differentiated_twice():
    with sdpa_kernel(SDPBackend.MATH):
        yield


@pytest.fixture(params=CASES, ids=str)
def case(request):
    model, shape = CASES[request.param]
    torch.manual_seed(0)
    model = model.double()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.5)
    return model, torch.randn(shape, dtype=torch.float64)


def product(model, inputs, vectors):
    leaves = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = torch.exp(model(inputs)).sum()  # curved in the outputs
    gradient = torch.autograd.grad(loss, leaves, create_graph=True)
    return torch.autograd.grad(gradient, leaves, vectors)


def test_equal_to_pytorch(case):
    model, inputs = case
    vectors = [torch.randn_like(parameter) for parameter in model.parameters() if parameter.requires_grad]
    expected = product(model, inputs, vectors)
    with CheapSecondDerivatives():
        found = product(model, inputs, vectors)
    largest = max(float(part.abs().max()) for part in expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14 * max(largest, 100.0))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)), (2, 3, 7, 7)),
        (nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 4)), (2, 3, 6)),
        (Attention(), (2, 3, 6)),
    ],
    ids=["convolutions", "layers", "attention"],
)
def test_products_of_some_entries_only(model, shape):
    model = model.double()
    inputs = torch.randn(shape, dtype=torch.float64)
    leaves = list(model.parameters())
    for index, leaf in enumerate(leaves):
        results = []
        for mode in (CheapSecondDerivatives(), torch.enable_grad()):
            with mode:
                gradient = torch.autograd.grad(torch.exp(model(inputs)).sum(), leaves, create_graph=True)
            results.append(torch.autograd.grad(gradient[index], leaves, torch.ones_like(leaf), allow_unused=True))
        for one, other in zip(*results, strict=True):
            if other is None:
                assert one is None or not one.any()
            else:
                torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_only_rows_of_zeros_are_left_out():
    gradient = torch.zeros(9, 3)
    gradient[4, 1], gradient[7, 2] = 1e-44, torch.nan
    assert find_used_rows(gradient).index.tolist() == [4, 7]
    gradient[::2, 2] = 1.0
    assert find_used_rows(gradient).index is None  # more than half are left
    assert find_used_rows(torch.ones(9, 3)).index is None


def test_every_replacement_is_reached():
    reached = set()

    class Watch(CheapSecondDerivatives):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = super().__torch_function__(func, types, args, kwargs)
            if func in REPLACEMENTS and type(result.grad_fn).__name__.startswith("_"):
                reached.add(func)
            return result

    image = torch.randn(1, 2, 6, 6)
    with Watch():
        for layer, inputs in (
            (nn.Conv1d(2, 2, 2), image[0]),
            (nn.Conv2d(2, 2, 2), image),
            (nn.Conv3d(2, 2, 1), image[None].transpose(1, 2)),
        ):
            shaped = inputs if not isinstance(layer, nn.Conv1d) else inputs.transpose(0, 1)
            outputs = layer(shaped)
        outputs = nn.Conv2d(2, 2, 2)(image)
        outputs = nn.BatchNorm2d(2).eval()(outputs)
        nn.MaxPool2d(2)(nn.ReLU()(torch.relu(outputs).relu()))
        nn.LayerNorm(3)(nn.GELU()(nn.Linear(6, 3)(image)))
        Attention()(image[0])
    assert reached == set(REPLACEMENTS)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1, ceil_mode=True)], ids=["apart", "overlapping"])
def test_pooling_after_relu_is_done_before_it(pool, order):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), pool, nn.Conv2d(4, 2, 2)).double()
    model[0].bias.data -= 0.8  # windows where ReLU passes nothing
    inputs = torch.randn(5, 3, 8, 8, dtype=torch.float64).contiguous(memory_format=order)
    vectors = [torch.randn_like(parameter) for parameter in model.parameters()]
    expected = product(model, inputs, vectors)
    with CheapSecondDerivatives():
        outputs = model[:3](inputs)
        found = product(model, inputs, vectors)
    assert "Relu" in type(outputs.grad_fn).__name__
    torch.testing.assert_close(outputs, model[:3](inputs), rtol=0, atol=0)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_what_was_changed_after_relu_is_pooled_as_it_is():
    image = torch.randn(1, 2, 4, 4, requires_grad=True)
    with CheapSecondDerivatives():
        changed = torch.relu(image)
        changed += 1.0
        found = nn.functional.max_pool2d(changed, 2)
    torch.testing.assert_close(found, nn.functional.max_pool2d(torch.relu(image) + 1.0, 2))


def test_batch_norm_after_a_convolution_is_one_convolution():
    torch.manual_seed(0)
    model = at_rest(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).double()
    image = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    with CheapSecondDerivatives():
        outputs = model(image)
    assert "Convolution" in type(outputs.grad_fn).__name__
    torch.testing.assert_close(outputs, model(image))


def test_what_was_changed_after_a_convolution_is_normalised_as_it_is():
    model = at_rest(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    image = torch.randn(2, 3, 6, 6)
    with CheapSecondDerivatives():
        convolved = model[0](image)
        with torch.no_grad():
            convolved += 1.0
        found = model[1](convolved)
    torch.testing.assert_close(found, model[1](model[0](image) + 1.0))


def test_derivatives_of_a_jacobian_leave_out_those_by_the_input():
    torch.manual_seed(0)
    model = nn.Sequential(Attention(), nn.Linear(4, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 4)).double()
    inputs, leaves = torch.randn(3, 2, 6, dtype=torch.float64), list(model.parameters())
    vectors = [torch.randn_like(leaf) for leaf in leaves]
    with CheapSecondDerivatives(linear=True):
        outputs = model(inputs)
        dual = torch.zeros_like(outputs, requires_grad=True)
        pulled = torch.autograd.grad(outputs, leaves, dual, create_graph=True)
        (pushed,) = torch.autograd.grad(pulled, dual, vectors, retain_graph=True)
        assert all(part is None for part in torch.autograd.grad(pulled, leaves, vectors, allow_unused=True))
    names = [name for name, _ in model.named_parameters()]

    def call(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (inputs,))

    _, expected = torch.func.jvp(call, tuple(leaf.detach() for leaf in leaves), tuple(vectors))
    torch.testing.assert_close(pushed, expected, rtol=1e-12, atol=1e-12)
