"""
Local against global sharpness
==============================

How flat is a model for each client, and for everyone? Clients' Hessians at one point add up to the Hessian of
everyone's loss, so that one pass over the clients answers both.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from landscape import Objective, SumOperator, eigenpairs

images, labels = load_digits(return_X_y=True)
X, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

# %%
# The first client holds the digits 0 to 4, the second one the others. The model is trained on the first client's data
# alone, as it is in a round of federated learning.

held = [y < 5, y >= 5]
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(100):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(X[held[0]]), y[held[0]]).backward()
    optimizer.step()

# %%
# An objective is the loss of a model on some data, as a function of one flat vector of parameters. ``SumOperator`` adds
# up Hessians without computing anything twice.

clients = [Objective(model, (X[own], y[own])) for own in held]
theta = clients[0].theta
parts = [client.hessian(theta) for client in clients]
everyone = SumOperator(parts, weights=[float(own.float().mean()) for own in held])

axes = None
for name, operator in [("client 0", parts[0]), ("client 1", parts[1]), ("everyone", everyone)]:
    top = eigenpairs(operator, k=5)
    print(f"{name}: largest eigenvalue {top.values[0]:.3g}, residual {top.residuals[0]:.1g}, {top.outcome.name}")
    axes = top.plot(axes, label=name)
axes.set_yscale("log")
axes.legend()
plt.show()

# %%
# The model is flat for the client that trained it and many times as sharp for the other: flatness that a client finds
# by itself says little about everyone's loss.
