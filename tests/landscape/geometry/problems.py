"""Small objectives: quadratics of any Hessian, least squares, and a network of two layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from landscape import Objective
from landscape.rng import normal


class Point(nn.Module):
    """A model that is nothing but its weights."""

    def __init__(self, w: Tensor):
        super().__init__()
        self.w = nn.Parameter(w.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.w


def signed_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * targets[:, 0] * (outputs - targets[:, 1]) ** 2


def quadratic(A: Tensor, centre: Tensor, w: Tensor) -> Objective:
    """L(w) = (w - c)' A (w - c) / 2 for any symmetric A, one example per eigenvector."""
    values, vectors = torch.linalg.eigh(A)
    inputs = (len(A) * values.abs()).sqrt()[:, None] * vectors.T
    targets = torch.stack([values.sign(), inputs @ centre], dim=1)
    return Objective(Point(w), (inputs, targets), loss=signed_square)


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def indefinite(size: int, seed: int) -> Tensor:
    """Symmetric, and with its lowest eigenvalue further out than the highest."""
    rotation, _ = torch.linalg.qr(numbers(size, size, seed=seed))
    return rotation @ torch.diag(torch.linspace(-7, 4, size, dtype=torch.float64)) @ rotation.T


def data(count: int = 10) -> tuple[Tensor, Tensor]:
    return numbers(count, 3, seed=9), torch.arange(count) % 3


def network(activation: type[nn.Module] = nn.Tanh, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), activation(), nn.Linear(5, 3)).double()


def loss_and_gradient(model: nn.Module, theta: Tensor, inputs: Tensor, targets: Tensor) -> tuple[float, Tensor]:
    """By autograd over named parameters: none of the code under test."""
    theta = theta.detach().requires_grad_()
    sizes = [tensor.numel() for tensor in model.parameters()]
    shaped = {
        name: part.view(tensor.shape)
        for (name, tensor), part in zip(model.named_parameters(), theta.split(sizes), strict=True)
    }
    loss = functional.cross_entropy(functional_call(model, shaped, (inputs,)), targets)
    return loss.item(), torch.autograd.grad(loss, theta)[0]


def regression() -> tuple[Objective, Tensor, Tensor, Tensor]:
    """Least squares in five weights, two points, and the minimum."""
    X, y = normal((29, 5), 1), normal((29, 1), 2)
    objective = Objective(nn.Linear(5, 1, bias=False).double(), (X, y), functional.mse_loss)
    a, b = normal((2, 5), 3)
    return objective, a, b, torch.linalg.lstsq(X, y).solution[:, 0]
