"""What holds for all tests: one thread per process, as two share the cores and sums come out the same; no waiting."""

import gc
import multiprocessing
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

# Before numpy and torch are loaded, whose libraries read it then; every process that a test starts inherits it. What
# torch is told below holds for one thread of this process alone.
os.environ["OMP_NUM_THREADS"] = "1"
# Tests start hundreds of processes, and without this each would compile every module of this project again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import torch  # noqa: E402 (see above)

torch.set_num_threads(1)

# files whose single tests take longest: begun first, so that the workers of xdist end together
LONGEST = ("test_docs.py", "device/test_testdevice.py", "training/test_slurm.py", "training/executors/test_ray.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.partition("::")[0].endswith(LONGEST))


def pytest_collection_finish() -> None:
    """What has been imported stays: every garbage collection would look through all of it again."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_disk() -> Iterator[None]:
    """Whether bytes have reached the disk is nothing that a test can see, and waiting for it is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: os.fstat(handle) and None)  # a file that is not open is refused
        yield


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[None]:
    """Fork workers from a process that has imported everything: for tests of what they compute, not of how they start.

    A worker that is started as users start it takes seconds to import torch; `tests/training/executors` starts those.
    """
    from tests.fuzz import commands
    from training.executors import process_pool

    commands.start_server()
    context = multiprocessing.get_context("forkserver")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_pool, "multiprocessing", SimpleNamespace(get_context=lambda kind: context))
        yield
