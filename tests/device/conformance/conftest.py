"""Tests of a device, which the environment names: LANDSCAPE_TEST_DEVICE=cuda pytest tests/device/conformance."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from landscape.runtime.device import find_device, has_float64

NAME = os.environ.get("LANDSCAPE_TEST_DEVICE", "")
# on the CPU there is nothing to compare with: `tests/device/test_testdevice.py` runs these files on the test device
collect_ignore_glob = [] if NAME else ["test_*.py"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The device that is tested."""
    return find_device(NAME)


@pytest.fixture(scope="session")
def dtype(device: torch.device) -> torch.dtype:
    """The most exact precision of the device."""
    return torch.float64 if has_float64(device) else torch.float32


@pytest.fixture(scope="session")
def close(dtype: torch.dtype) -> Callable[..., bool]:
    """Whether results of the device and of the CPU are equal up to rounding, relative to the largest of them."""

    def compare(own: Tensor | np.ndarray | float, other: Tensor | np.ndarray | float, loosely: float = 1.0) -> bool:
        left, right = (
            one.cpu().double().numpy() if isinstance(one, Tensor) else np.asarray(one, float) for one in (own, other)
        )
        assert left.shape == right.shape
        assert (np.isnan(left) == np.isnan(right)).all()
        left, right = np.nan_to_num(left), np.nan_to_num(right)
        most = max(float(np.abs(right).max(initial=0.0)), 1e-30)
        return float(np.abs(left - right).max(initial=0.0)) <= loosely * (1e-10 if exact else 2e-5) * most

    exact = dtype == torch.float64
    return compare
