"""
Your own data
=============

A data set of yours is a function that returns examples for training and for testing. Here are two rings of points; the
function lies in a module, so that stored runs and worker processes find it again.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import analysis
import training

folder = Path(tempfile.mkdtemp())
(folder / "rings.py").write_text('''
import torch


def load():
    """Two noisy rings, as images of 1 x 1 x 2 numbers."""
    generator = torch.Generator().manual_seed(0)
    angle = 2 * torch.pi * torch.rand(900, generator=generator)
    label = torch.arange(900) % 2
    radius = 1.0 + label + 0.15 * torch.randn(900, generator=generator)
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1).view(-1, 1, 1, 2)
    return (points[:600], label[:600]), (points[600:], label[600:])


def network(classes):
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(2, 24), torch.nn.Tanh(), torch.nn.Linear(24, classes)
    )
''')
sys.path.append(str(folder))  # modules are found on this path, and in the current folder
import rings

inputs, labels = rings.load()[0]
print(inputs.shape, labels.unique())

# %%
# Data and model are named ``module:function``. Everything else is as for the built-in ones: clients are dealt their
# examples by a partition, and studies measure the run.

run = training.train(
    {
        "data": {"name": "rings:load"},
        "model": {"name": "rings:network"},
        "partition": {"name": "dirichlet_total", "clients": 6, "alpha": 0.3},
        "local": {"lr": 0.3, "batch_size": 20, "epochs": 3},
        "rounds": {"count": 20, "participants": 6},
        "checkpoints": {"every": 5},
    },
    folder / "runs",
    backend="serial",
)
curvature = analysis.analyze(run, "curvature", rounds="all", top=2)

# %%
# An answer is an xarray Dataset with named axes; it becomes a pandas table in one call.

print(curvature["eigenvalue"].to_pandas().round(3))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
run.metrics["accuracy"].plot(ax=left, xlabel="round", ylabel="test accuracy")
curvature["eigenvalue"].sel(rank=1).plot(ax=right, marker="o")
right.set(title="", xlabel="round", ylabel="largest eigenvalue")
plt.show()
