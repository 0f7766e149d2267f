"""One thread per test process: two of them share the cores, and sums come out the same everywhere."""

import os
import sys

# Before numpy and torch are loaded, whose libraries read it then; every process that a test starts inherits it. What
# torch is told below holds for one thread of this process alone.
os.environ["OMP_NUM_THREADS"] = "1"
# Tests start hundreds of processes, and without this each would compile every module of this project again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import torch  # noqa: E402 (see above)

torch.set_num_threads(1)
