"""What happens when the memory of a device runs out: chunks are halved, graphs given up, and a warning says so."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from landscape import Objective
from landscape.runtime.memory import LEDGER, available, memory_of, retry_smaller
from tests.landscape import cases


@pytest.fixture
def limit(device):
    """Leave so many bytes free on the test device; a real one's memory is only read."""
    if device.type != "testdevice":
        pytest.skip("only the test device's memory can be made smaller")
    usual = torch.ops.testdevice.get_limit()
    yield lambda free: torch.ops.testdevice.set_limit(torch.ops.testdevice.count_allocated(0) + free)
    torch.ops.testdevice.set_limit(usual)


def wide(device, count=64):
    """A network whose activations outweigh its weights."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 16 * 16, 3))
    for parameter in model.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator)
    data = torch.randn(count, 1, 16, 16, generator=generator), torch.arange(count) % 3
    return Objective(model, data, device=device, chunk_size=count), Objective(model, data)


def test_memory_is_the_device_s(device):
    memory = memory_of(device)
    assert 0 < memory.free <= memory.total
    before = available(device)
    kept = torch.zeros(2**22, device=device)
    assert device.type == "mps" or available(device) <= before - kept.nbytes + 2**21  # torch's cache gives in blocks


def test_chunks_are_halved(device, limit, close):
    there, on_cpu = wide(device)
    assert len(there.chunks) == 1
    limit(2**20)
    with pytest.warns(RuntimeWarning, match="out of memory on testdevice:0: continuing with 32 examples at once"):
        loss, gradient = there.loss_and_gradient(on_cpu.theta)
    assert len(there.chunks) > 1
    assert close(loss, on_cpu.loss(on_cpu.theta), loosely=1e5)
    assert close(gradient, on_cpu.gradient(on_cpu.theta), loosely=1e5)


def test_graphs_are_given_up(device, limit, close):
    there, on_cpu = wide(device)
    v = torch.linspace(-1, 1, on_cpu.size)
    expected = on_cpu.hessian(on_cpu.theta) @ v
    operator = there.hessian(on_cpu.theta, "retained")
    held = LEDGER.held(device)
    assert held > 0
    limit(2**19)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        product = operator @ v
    assert "0 kept graphs of 1" in str(said[0].message)
    assert close(product, expected, loosely=1e6)
    assert LEDGER.held(device) < held


def test_a_batch_that_cannot_be_cut_is_an_error(device, limit):
    case = cases.make("convolution")
    there = Objective(case.model, case.data, device=device, batchnorm="batch", dtype=torch.float32)
    limit(2**10)
    with pytest.raises(torch.OutOfMemoryError):
        there.loss(there.theta)


def test_chunks_fit_into_free_memory(device, limit):
    limit(2**22)
    there, _ = wide(device)
    assert len(there.chunks) > 1


def test_work_that_cannot_shrink_raises(device):
    def compute() -> None:
        raise torch.OutOfMemoryError("no")

    with pytest.raises(torch.OutOfMemoryError):
        retry_smaller(compute, lambda: "", device)
