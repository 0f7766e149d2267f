"""Freed memory is used again, unless somebody else decides about the allocator."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

COUNT = """
import resource, torch
from landscape.memory import keep_freed
{call}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(3_000_000) + torch.ones(3_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def output(code: str, **environment: str) -> str:
    own = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**own, **environment}
    )
    return done.stdout.strip()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told")
def test_pages_are_not_cleared_again_and_again() -> None:
    kept = int(output(COUNT.format(call="assert keep_freed()")))
    assert kept < 2000  # 60 arrays of 12 MB would be 180,000 pages


def test_a_tuned_allocator_is_left_alone() -> None:
    code = "from landscape.memory import keep_freed; print(keep_freed())"
    assert output(code, MALLOC_ARENA_MAX="4") == "False"
    assert output(code, GLIBC_TUNABLES="glibc.malloc.arena_max=4") == "False"
