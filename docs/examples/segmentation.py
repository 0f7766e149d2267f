"""
A federation that segments images
=================================

Four hospitals hold slices of a brain and learn to tell its tissues apart. What is measured
afterwards is the same as for classification.
"""

import sys
import tempfile
from pathlib import Path

import analysis
import reports
import training

folder = Path(tempfile.mkdtemp())
(folder / "tissue.py").write_text('''
from torch import nn


def network(classes, channels):
    """Three convolutions; the answer has a class for every pixel."""
    return nn.Sequential(
        nn.Conv2d(channels, 12, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(12, classes, 3, padding=1),
    )
''')
sys.path.append(str(folder))  # modules are found on this path, and in the current folder
import tissue

print(tissue.network(classes=4, channels=1))

# %%
# The data set ``brain`` ships with the package. Any network that returns logits for every pixel will do.

run = training.train(
    {
        "data": {"name": "brain"},
        "model": {"name": "tissue:network"},
        "partition": {"name": "iid", "clients": 4},
        "algorithm": {"name": "fedsam", "rho": 0.05},
        "local": {"lr": 0.05, "batch_size": 9, "epochs": 1},
        "rounds": {"count": 5, "participants": 4},
        "checkpoints": {"every": 5, "keep_locals": "all"},
    },
    folder / "runs",
    backend="serial",
)
print(run.metrics.iloc[-1])

# %%
# The sharpness of what was found, and the accuracy of pixels over the rounds.

curvature = analysis.analyze(run, "curvature", top=1, limit=24, tol=0.05)
print(f"largest eigenvalue {float(curvature['eigenvalue'][-1, 0]):.2f}")
figure = reports.figure("accuracy", run)
