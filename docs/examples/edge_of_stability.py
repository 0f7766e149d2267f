r"""
The edge of stability
=====================

Gradient descent with rate :math:`\eta` is stable in directions of curvature below :math:`2 / \eta`. Cohen et al. (2021)
found that training sharpens the loss until :math:`\lambda_1` reaches just that line, and then hovers there. Exact
eigenvalues along a full-batch run show it.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

from landscape import Objective, eigenpairs

images, labels = load_digits(return_X_y=True)
X, y = torch.tensor(images, dtype=torch.float32)[:300] / 16, torch.tensor(labels)[:300]
one_hot = nn.functional.one_hot(y, 10).float()

# %%
# The objective is made once. Its Hessian is asked for at other vectors of parameters: the model is never changed. The
# eigenvector of one point starts the search at the next.

figure, axes = plt.subplots()
for rate, color in [(0.9, "C0"), (0.6, "C1")]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    objective = Objective(model, (X, one_hot), loss=nn.MSELoss())
    theta, steps, found, start = objective.theta, [], [], None
    for step in range(1201):
        if step % 75 == 0:
            top = eigenpairs(objective.hessian(theta), k=1, tol=1e-2, start=start)
            start = top.vectors[0]
            steps.append(step)
            found.append(top.values[0])
        theta = theta - rate * objective.gradient(theta)
    axes.plot(steps, found, marker="o", color=color, label=f"η = {rate}")
    axes.axhline(2 / rate, color=color, linestyle="--", label=f"2/η = {2 / rate:.2f}")
axes.set(xlabel="step of gradient descent", ylabel=r"$\lambda_1$ of the training loss")
axes.legend()
plt.show()
