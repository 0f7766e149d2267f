"""
The barrier between two models
==============================

Two models trained from different starts lie in different places. Along the straight line between them the loss rises; a
curve that is trained to stay low gets around the barrier (Garipov et al. 2018).
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

from landscape import Objective, barrier, curve

images, labels = load_digits(return_X_y=True)
X, y = torch.tensor(images, dtype=torch.float32)[:500] / 16, torch.tensor(labels)[:500]


def train(seed):
    """Train a small network from a random start."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X), y).backward()
        optimizer.step()
    return model


first, second = train(0), train(1)
objective = Objective(first, (X, y))
straight = barrier(objective, first, second, steps=21)
around = curve(objective, first, second, iterations=60, points=21)

# %%
# Papers mean different things by a barrier: the height above the chord, above the mean of the ends, or above the higher
# end. All three are in the result.

print(straight.loss)
axes = straight.plot()
around.plot(axes)
plt.show()
