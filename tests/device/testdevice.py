"""Load the test device into this process, where it is then called testdevice, testdevice:0 and testdevice:1."""

from __future__ import annotations

import os
import types
from pathlib import Path

import torch

LIBRARY = "LANDSCAPE_TESTDEVICE"  # the environment variable that names the compiled device; worker processes read it
FLOAT64 = "LANDSCAPE_TESTDEVICE_FLOAT64"  # "0": the device has no float64, as Apple's has none
NAME = "testdevice"


def load(library: Path | str) -> None:
    """Load the compiled device. Before the first backward pass: torch counts devices only then."""
    torch.ops.load_library(str(library))
    torch.utils.rename_privateuse1_backend(NAME)
    torch.ops.testdevice.register_hooks()
    torch._register_device_module(NAME, _make_module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    torch.ops.testdevice.allow_float64(os.environ.get(FLOAT64) != "0")


def _make_module() -> types.ModuleType:
    """What torch.testdevice offers, as torch.cuda does."""
    module = types.ModuleType(f"torch.{NAME}")
    operations = torch.ops.testdevice

    def find_index(device: torch.device | int | None) -> int:
        return (device.index or 0) if isinstance(device, torch.device) else device or 0

    def mem_get_info(device: torch.device | int | None = None) -> tuple[int, int]:
        limit = operations.get_limit()
        return max(limit - operations.count_allocated(find_index(device)), 0), limit

    found = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: 0,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "manual_seed_all": lambda seed: None,
        "synchronize": lambda device=None: None,
        "mem_get_info": mem_get_info,
        "max_memory_allocated": lambda device=None: operations.count_peak(find_index(device)),
        "reset_peak_memory_stats": lambda device=None: operations.reset_peak(find_index(device)),
    }
    for name, value in found.items():
        setattr(module, name, value)
    return module
