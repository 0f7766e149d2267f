"""The stacked form of a network against torch's own, client by client in float64."""

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from landscape.layout import Layout
from training.executors.stacked_layers import StackedNetwork, stack_network
from training.models.cnn import digits_cnn, lenet64, mlp

NETWORKS = {
    "digits_cnn": (digits_cnn(10), (1, 8, 8)),
    "lenet64": (lenet64(10, size=16), (3, 16, 16)),
    "mlp": (mlp(4, channels=2, size=3, hidden=(5,)), (2, 3, 3)),
    "odd sides": (
        nn.Sequential(
            nn.Conv2d(2, 3, (3, 2), padding=(2, 0)), nn.MaxPool2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(9, 4)
        ),
        (2, 8, 6),
    ),
    "no bias": (
        nn.Sequential(nn.Conv2d(1, 3, 2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4, bias=False)),
        (1, 4, 4),
    ),
    "images that are pooled first": (
        nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)),
        (2, 5, 4),
    ),
}


def stack(module: nn.Module) -> tuple[StackedNetwork, Layout]:
    layout = Layout.of(module)
    network = stack_network(module, layout)
    assert network is not None
    return network, layout


def differentiate(module: nn.Module, layout: Layout, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and gradient of one client, by torch."""
    own = {name: one.requires_grad_() for name, one in layout.unflatten(w.clone()).items()}
    outputs = torch.func.functional_call(module, own, (x,))
    slopes = torch.autograd.grad(nn.functional.cross_entropy(outputs, y), list(own.values()))
    return outputs.detach(), torch.cat([one.reshape(-1) for one in slopes])


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_those_of_torch(name: str) -> None:
    module, shape = NETWORKS[name]
    module = module.double()
    network, layout = stack(module)
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(3, layout.size, dtype=torch.float64, generator=generator) / 3
    # whole numbers, so that pixels of a square are often equal: the first of them takes the slope
    x = torch.randint(-1, 2, (3, 5, *shape), generator=generator).double()
    classes = layout.entries[-1].shape[0]
    y = torch.randint(classes, (3, 5), generator=generator)
    tensors = layout.unflatten(w)
    outputs, kept = network.forward(tensors, x)
    leaf = outputs.clone().requires_grad_()
    (slope,) = torch.autograd.grad(nn.functional.cross_entropy(leaf.flatten(0, 1), y.flatten()) * 3, leaf)
    found = network.backward(slope, kept, tensors, list(tensors))
    for client in range(3):
        expected, gradient = differentiate(module, layout, w[client], x[client], y[client])
        torch.testing.assert_close(outputs[client], expected, rtol=1e-12, atol=1e-12)
        own = torch.cat([found[entry.name][client].reshape(-1) for entry in layout.entries])
        torch.testing.assert_close(own, gradient, rtol=1e-11, atol=1e-12)


def test_the_pass_ends_at_the_first_wanted_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    network, layout = stack(digits_cnn(10))
    tensors = layout.unflatten(torch.randn(2, layout.size))
    outputs, kept = network.forward(tensors, torch.randn(2, 3, 1, 8, 8))
    wanted = [entry.name for entry in layout.entries[-2:]]
    whole = network.backward(torch.ones_like(outputs), kept, tensors, list(tensors))
    monkeypatch.setattr("training.executors.stacked_layers.copy_patches", None)  # no convolution goes backwards
    head = network.backward(torch.ones_like(outputs), kept, tensors, wanted)
    assert list(head) == wanted
    assert all(torch.equal(head[name], whole[name]) for name in wanted)


def test_copies_are_counted_before_they_are_made() -> None:
    network, layout = stack(lenet64(10, size=16))
    x = torch.randn(2, 3, 3, 16, 16)
    _, kept = network.forward(layout.unflatten(torch.randn(2, layout.size)), x)
    first, second = kept[0][0], kept[3][0]
    # backwards the patches of the first convolution have its 64 filters as channels
    assert network.count_copied((3, 16, 16)) * 2 * 3 == first.numel() // 3 * 64 + second.numel()


class Twice(nn.Linear):
    """A layer that is not what its base class is."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    module[1].register_forward_hook(lambda *_: None)
    return module


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    module[1].bias.requires_grad_(False)
    return module


shared = nn.Linear(4, 4)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), Twice(4, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Softmax(dim=1)),
        nn.Sequential(nn.Linear(2, 2)),  # of the last axis of images
        nn.Sequential(nn.Conv2d(1, 2, 1)),
        nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.Conv2d(1, 2, 1, padding=1), nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.Conv2d(2, 2, 1, groups=2), nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.Conv2d(1, 2, 2, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.MaxPool2d(3, stride=2), nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.Flatten(2), nn.Linear(4, 2)),
        nn.Sequential(OrderedDict(flat=nn.Flatten(), first=shared, second=shared)),
        nn.Linear(4, 2),
        hooked(),
        frozen(),
    ],
    ids=lambda module: "-".join(type(one).__name__ for one in module.children()) or "alone",
)
def test_what_has_no_stacked_form_is_left_to_vmap(module: nn.Module) -> None:
    assert stack_network(module, Layout.of(module)) is None
