"""
The plane through three clients
===============================

Three clients train from the same model and end in three places. The loss over the plane through them shows whether they
are in one valley, and where their average lies.
"""

import tempfile

import analysis
import reports
import training

run = training.train(
    "digits_fedavg",
    tempfile.mkdtemp(),
    settings={"partition.alpha": 0.0, "rounds.count": 6, "local.lr": 0.1},
    backend="serial",
)
answer = analysis.analyze(run, "plane", models="clients", steps=11, limit=200)
figure = reports.figure("plane", run)

# %%
# Every client holds a single digit, so each corner is a model that knows only that one. The numbers behind the picture:

loss = answer["loss"].squeeze()
print(loss.sizes)
print(f"training loss from {float(loss.sel(split='train').min()):.2f} to {float(loss.sel(split='train').max()):.1f}")
