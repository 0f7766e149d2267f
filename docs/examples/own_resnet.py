"""
Your own ResNet with BatchNorm
==============================

Any torch model can be measured. With BatchNorm one has to say which statistics a moved model uses: those that training
left (``frozen``), those of the data at each point (``recomputed``), those of each batch (``batch``), or, between two
models, ones that move along (``interpolated``). Numbers of different policies cannot be compared, so the policy is
always written down.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

from landscape import Objective, directions, eigenpairs, line

images, labels = load_digits(return_X_y=True)
X, y = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8)[:600] / 16, torch.tensor(labels)[:600]


class Block(nn.Module):
    """Two convolutions with BatchNorm, and a shortcut around them."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        h = torch.relu(self.bn1(self.first(x)))
        return torch.relu(x + self.bn2(self.second(h)))


torch.manual_seed(0)
stem = [nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
model = nn.Sequential(*stem, Block(8), Block(8), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10))

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(60):
    batch = torch.arange(step * 50, step * 50 + 50) % len(X)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(X[batch]), y[batch]).backward()
    optimizer.step()

# %%
# The same model, the same direction, two policies. The model itself is only read: its parameters, its statistics and
# its training mode stay as they are.

figure, axes = plt.subplots()
for policy in ("frozen", "recomputed"):
    objective = Objective(model, (X, y), batchnorm=policy)
    theta = objective.theta
    (direction,) = directions.filter_normalized(objective.layout, theta, seed=0, count=1)
    found = line(objective, theta, direction, steps=15, extent=1.0)
    top = eigenpairs(objective.hessian(theta), k=1, tol=1e-2)
    print(f"{policy}: largest eigenvalue {top.values[0]:.1f} +- {top.residuals[0]:.1g}")
    found.plot(axes, label=policy)
axes.set_yscale("log")
axes.legend(title="BatchNorm")
plt.show()
assert model.training
