"""
Your own federated method
=========================

A method fills slots of one local step and of the server. Nothing of the package is edited: a module of yours is named
``module:name`` wherever the name of a method can stand. This one pulls every client towards the model that it was sent,
harder with every step.
"""

import sys
import tempfile
from pathlib import Path

import analysis
import reports
import training
from training import testing

folder = Path(tempfile.mkdtemp())
(folder / "growing.py").write_text('''
from pydantic import Field

from training.methods.method import Method
from training.rules.corrections import Correction
from training.rules.perturbations import NoPerturbation
from training.rules.servers import Mean
from training.settings import NonNegative, settings


@settings
class GrowingPull(Correction):
    """u = g~ + mu s (w - w^t) in local step s = 1, 2, ..."""

    mu: NonNegative = Field(default=0.1, description="strength of the pull in the first step")

    def __call__(self, gradient, plain, w, context):
        return gradient + self.mu * (context.step + 1) * (w - context.start)


GROWING = Method("growing", NoPerturbation(), GrowingPull(), Mean(), paper="ours")
''')
sys.path.append(str(folder))  # modules are found on this path, and in the current folder
import growing

print(growing.GROWING)

# %%
# The suite that every built-in method passes: an ``AssertionError`` says what is wrong.

testing.check_method("growing:GROWING", processes=False)

# %%
# Train it beside FedAvg on the same clients, and measure both.

recipe = {
    "partition": {"name": "dirichlet_total", "clients": 10, "alpha": 0.0},
    "local": {"lr": 0.1, "epochs": 1},
    "rounds": {"count": 8, "participants": 5},
    "checkpoints": {"every": 4, "keep_locals": "all"},
}
methods = [{"name": "fedavg"}, {"name": "growing:GROWING", "mu": 0.05}]
runs = [training.train({**recipe, "algorithm": one}, folder / "runs", backend="serial") for one in methods]
analysis.analyze(runs, "drift")
print(reports.collect(runs)[["method", "accuracy"]])
figure = reports.figure("drift", runs)
