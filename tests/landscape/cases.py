"""A catalogue of tiny float64 problems with ragged data, and their dense Hessians by an independent road."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Case:
    model: nn.Module
    inputs: Tensor
    targets: Tensor
    loss: Callable[..., Tensor] = functional.cross_entropy

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        return self.inputs, self.targets

    def parameters(self) -> list[Tensor]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def theta(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.parameters()])

    def function(self) -> Callable[[Tensor], Tensor]:
        """The loss as a function of a flat vector, by functional_call on all the data at once."""
        names = [name for name, p in self.model.named_parameters() if p.requires_grad]
        shapes = [p.shape for p in self.parameters()]

        def value(vector: Tensor) -> Tensor:
            parts = torch.split(vector, [shape.numel() for shape in shapes])
            tensors = {name: part.reshape(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                return self.loss(torch.func.functional_call(self.model, tensors, (self.inputs,)), self.targets)

        return value

    def dense_hessian(self) -> Tensor:
        """All second derivatives by reverse-over-reverse, one row at a time."""
        value = self.function()
        theta = self.theta().requires_grad_()
        (gradient,) = torch.autograd.grad(value(theta), theta, create_graph=True)
        rows = [
            torch.autograd.grad(entry, theta, retain_graph=True, allow_unused=True, materialize_grads=True)[0]
            for entry in gradient
        ]
        return torch.stack(rows)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 12)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).chunk(3, dim=-1)
        return self.head(functional.scaled_dot_product_attention(q, k, v).mean(dim=1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Tied(nn.Module):
    """Embedding and output share one tensor; one parameter is frozen, one is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.frozen = nn.Linear(4, 4)
        self.unused = nn.Parameter(torch.ones(3))
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.frozen(self.embed(x))))


def _labels(count: int, classes: int = 3) -> Tensor:
    return torch.randint(0, classes, (count,))


def mlp(count: int = 70) -> Case:
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    return Case(model.double(), torch.randn(count, 5).double(), _labels(count))


def convolution() -> Case:
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, bias=False),
        nn.BatchNorm2d(3),
        nn.Softplus(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 3),
    ).double()
    model(torch.randn(40, 2, 6, 6).double())  # gives the norm layer statistics of its own
    return Case(model.eval(), torch.randn(37, 2, 6, 6).double(), _labels(37))


def regression() -> Case:
    return Case(nn.Linear(4, 2).double(), torch.randn(23, 4).double(), torch.randn(23, 2).double(), functional.mse_loss)


def softmax_regression() -> Case:
    return Case(nn.Linear(4, 3, bias=False).double(), torch.randn(31, 4).double(), _labels(31))


def attention() -> Case:
    return Case(Attention().double(), torch.randn(11, 6, 4).double(), _labels(11))


def recurrent() -> Case:
    return Case(Recurrent().double(), torch.randn(9, 5, 3).double(), _labels(9))


def tied() -> Case:
    return Case(Tied().double(), torch.randint(0, 5, (17,)), _labels(17, 5))


CASES = {
    function.__name__: function
    for function in (mlp, convolution, regression, softmax_regression, attention, recurrent, tied)
}


def make(name: str) -> Case:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return CASES[name]()
