"""Devices by name, what each can do, and what is worth recording about them.

Random numbers are always drawn on the CPU and then moved, so that a seed means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from typing import Protocol

import torch
from torch import Tensor

from landscape.runtime.process_settings import ProcessSetting

CPU = torch.device("cpu")
Place = str | torch.device  # a device, or its name
NAMES = "auto, cpu, cuda, cuda:1 or mps"
WIDEST_EXACT = "ieee"  # torch's name for float32 products with all their bits


def find_device(wanted: Place = "auto") -> torch.device:
    """Find a device by its name, or raise ValueError that says what there is instead.

    wanted: cpu, cuda, cuda:1, mps, or another that torch knows. auto: the first CUDA device, else the CPU; never mps,
        which has no float64 and lacks operations.
    """
    if wanted == "auto":
        return find_device("cuda") if torch.cuda.is_available() else CPU
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise ValueError(f"device must be {NAMES}, got '{wanted}'") from None
    if device.type == "cpu":
        return CPU
    try:
        return torch.empty(0, device=device).device  # with its number, as tensors there have it
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        # torch's own words go on with a trace of its C++ code
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"device '{wanted}' cannot be used here ({reason}): write auto or cpu instead") from None


@cache
def has_float64(device: torch.device) -> bool:
    """Whether a device computes in float64; MPS does not."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


def choose_sum_device(device: torch.device) -> torch.device:
    """Choose where sums are taken in float64: on the device itself, or on the CPU if it has no float64."""
    return device if has_float64(device) else CPU


def to_float64(tensor: Tensor) -> Tensor:
    """A tensor in float64, moved to the CPU if its device has none."""
    return tensor.to(choose_sum_device(tensor.device), torch.float64)


def compute_norm(tensor: Tensor) -> Tensor:
    """The L2 norm of all entries, summed in float64."""
    length: Tensor = torch.linalg.vector_norm(tensor.to(choose_sum_device(tensor.device)), dtype=torch.float64)
    return length


def require_dtype(device: torch.device, dtype: torch.dtype) -> None:
    """Refuse float64 on a device that has none."""
    if dtype == torch.float64 and not has_float64(device):
        raise ValueError(f"device '{device.type}' has no float64: write dtype float32, or device cpu")


class _Operation(Protocol):
    fp32_precision: str


def _find_operations() -> dict[str, _Operation]:
    """torch's settings of the precision of float32 products, by operation."""
    names = {"matmul": "cuda.matmul", "convolution": "cudnn.conv", "rnn": "cudnn.rnn", "cpu matmul": "mkldnn.matmul"}
    return {operation: attrgetter(name)(torch.backends) for operation, name in names.items()}


@contextmanager
def _set_full_precision() -> Iterator[None]:
    if not torch.cuda.is_available() and torch.get_float32_matmul_precision() == "highest":
        yield  # no product could have fewer bits
        return
    operations = _find_operations()
    before = {name: one.fp32_precision for name, one in operations.items()}
    products, convolutions = torch.get_float32_matmul_precision(), _read_cudnn_tf32()
    # torch has old and new names for these settings, and refuses to read the old ones if they disagree with the new
    if convolutions is not None:
        torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    for one in operations.values():
        one.fp32_precision = WIDEST_EXACT
    try:
        yield
    finally:
        if convolutions is not None:
            torch.backends.cudnn.allow_tf32 = convolutions
        torch.set_float32_matmul_precision(products)
        for name, one in operations.items():
            one.fp32_precision = before[name]


def _read_cudnn_tf32() -> bool | None:
    """The old name of cuDNN's setting; None where the new names were used and say something else."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return None


# float32 products with all their bits while something is measured. Convolutions on CUDA have TF32 by default, which
# keeps 10 of 23 bits; training is left as the user set it.
full_precision = ProcessSetting(_set_full_precision)


def describe_device(device: torch.device) -> dict[str, object]:
    """What is recorded about a device: its name, and on CUDA the driver, cuDNN and whether TF32 is on.

    TF32 is as the user set it: training follows that, measurements switch it off.
    """
    about: dict[str, object] = {"type": device.type}
    if device.type == "cpu":
        return about
    operations = _find_operations()
    about["tf32"] = {name: operations[name].fp32_precision == "tf32" for name in ("matmul", "convolution")}
    about["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    if device.type == "cuda":
        about["name"] = torch.cuda.get_device_name(device)
        about["cuda"] = torch.version.cuda
        about["driver"] = _read_driver_version()
    return about


def _read_driver_version() -> str | None:
    """The version of NVIDIA's driver, as its kernel module tells it; None where it does not."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), None)
