"""
An adopted Flower run
=====================

Flower trained two clients on scikit-learn's digits; one holds the digits 0 to 4, the other 5 to 9. Its strategy saved
every model (``docs/flower/save_models.py``, thirty lines). Here that run is adopted and measured: how sharp is each
client's model on its own data, and on everyone's?
"""

import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

import analysis
import reports
import training
from landscape import Objective, eigenpairs

# the files of the run, and the module with its network and data
here = Path(__file__).resolve().parent if "__file__" in globals() else Path.cwd()
flower = here.parent / "flower"
sys.path.insert(0, str(flower))
from digits_task import load_data, make_net

# %%
# ``adopt.toml`` beside the models says which file is what, and which network, data and partition they belong to.

print((flower / "run" / "adopt.toml").read_text())

# %%
# Adopting makes a run directory. Flower left no accuracies, so every global model is tested on the way.

run = training.adopt(flower / "run", tempfile.mkdtemp())
print(run.metrics[["accuracy", "test_loss"]])

# %%
# Every study now works as it does for a run of ``landscape train``.

curvature = analysis.analyze(run, "curvature", rounds="last", top=2)
print("lambda_1 of the global model:", float(curvature["eigenvalue"].isel(rank=0).squeeze()))

views = analysis.analyze(run, "local_global", rounds="last", top=1)
print(views[["local_eigenvalue", "global_eigenvalue"]].squeeze().to_pandas())

# %%
# The same weights without a run, as ``landscape analyze --model ... --weights ...`` measures them, give the same bits.

net = make_net()
net.load_state_dict(load_file(flower / "run" / "global_3.safetensors"))
objective = Objective(net, load_data()[0], torch.nn.functional.cross_entropy, batchnorm="interpolated", chunk_size=512)
alone = eigenpairs(objective.hessian(objective.theta), 2)
print("the same without a run:      ", float(alone.values[0]))

# %%
# A client's model on everyone's data, beside the same on its own: what looks flat to one is sharp to all.

figure = reports.figure("local_global", run)
