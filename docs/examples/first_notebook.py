"""
A first notebook
================

From nothing to a federated figure in six cells. The button at the end of this page downloads it as a Jupyter notebook,
where runs show themselves as tables and long computations show a bar.
"""

import tempfile

import analysis
import reports
import training

folder = tempfile.mkdtemp()

# %%
# Train two methods on the digits: ten clients, one digit each. Two shipped recipes are changed a little.

changes = {"rounds.count": 6, "partition.alpha": 0.0, "local.lr": 0.1}
fedavg = training.train("digits_fedavg", folder, settings=changes, backend="serial", progress=False)
fedsam = training.train("digits_fedsam", folder, settings=changes, backend="serial", progress=False)

# %%
# A run describes itself.

fedsam

# %%
# Its metrics are a table of pandas.

fedsam.metrics[["accuracy"]].tail(3)

# %%
# Measure: each client's model on its own data and on everyone's.

answer = analysis.analyze([fedavg, fedsam], "local_global", clients=2, tol=0.01, progress=False)
answer[["local_eigenvalue", "global_eigenvalue"]].mean(["round", "client", "rank"]).to_dataframe()

# %%
# Draw. What is filled is the client's own view, what is open is everyone's: the gap between the two is what federated
# sharpness is about.

figure = reports.figure("local_global", [fedavg, fedsam])
figure
