r"""
A physics-informed network
==========================

A loss need not have targets, nor be a function of outputs alone. This network learns :math:`u'' = -\sin x` with
:math:`u(0) = u(\pi) = 0` from the equation itself: its loss takes derivatives by the inputs.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from landscape import Objective, directions, eigenpairs, plane

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)).double()
x = torch.linspace(0, torch.pi, 64, dtype=torch.float64)[:, None]


def physics(network, batch):
    """Sum of the squared residuals of the equation and of the boundary, and the number of points."""
    points = batch.detach().requires_grad_()
    u = network(points) * points * (torch.pi - points)  # zero at both ends, whatever the network says
    (slope,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), points, create_graph=True)
    return (bend + torch.sin(points)).square().sum(), len(points)


# %%
# The same function trains the network and is measured afterwards.

optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(400):
    optimizer.zero_grad()
    total, count = physics(model, x)
    (total / count).backward()
    optimizer.step()

objective = Objective(model, x, batch_loss=physics)
theta = objective.theta
print(f"loss {objective.loss(theta):.2e}")
top = eigenpairs(objective.hessian(theta), k=10)
print(f"eigenvalues from {top.values[0]:.3g} down to {top.values[-1]:.3g}: {top.outcome.name}")

# %%
# Networks of this kind are hard to train because a few directions are far sharper than the rest. Along the two sharpest
# ones the valley is narrow.

surface = plane(objective, theta, *directions.eigenvectors(top), steps=15, extent=0.1)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
top.plot(left).set_yscale("log")
surface.plot("contour", right)
plt.show()
