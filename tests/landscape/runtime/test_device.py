"""Devices by name, and settings of the whole process that are restored; devices themselves: tests/device."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from landscape import Objective, eigenpairs
from landscape.runtime import device as devices
from landscape.runtime.device import CPU, describe_device, find_device, full_precision, has_float64, require_dtype
from landscape.runtime.dropout import draw_dropout
from landscape.runtime.process_settings import ProcessSetting


def read_precisions():
    found = {name: one.fp32_precision for name, one in devices._find_operations().items()}
    return found, torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.fixture
def with_cuda(monkeypatch):
    """As on a machine with CUDA, as far as settings go."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_the_cpu_by_its_names():
    assert find_device("cpu") == find_device("cpu:0") == find_device(CPU) == CPU
    assert has_float64(CPU)
    assert describe_device(CPU) == {"type": "cpu"}


def test_auto_is_cuda_where_it_is_and_the_cpu_elsewhere(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device() == CPU
    asked = []
    real = torch.empty
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", lambda *_, device: asked.append(device) or real(0))
    find_device("auto")
    assert asked == [torch.device("cuda")]


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "CPU 1"])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match="device must be auto, cpu, cuda, cuda:1 or mps"):
        find_device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:7", "mps", "xpu"])
def test_a_device_that_is_not_there_is_refused_in_one_line(name):
    if name.partition(":")[0] == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ValueError, match="cannot be used here") as error:
        find_device(name)
    assert "\n" not in str(error.value)


def test_float64_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(devices, "has_float64", lambda device: False)
    with pytest.raises(ValueError, match="device 'cpu' has no float64: write dtype float32"):
        require_dtype(CPU, torch.float64)
    require_dtype(CPU, torch.float32)


def test_tf32_is_off_inside_and_restored_after_an_error(with_cuda):
    torch.set_float32_matmul_precision("high")
    try:
        before = read_precisions()
        assert before[0]["convolution"] == "tf32"
        seen = []

        @full_precision()
        def fail():
            with full_precision():
                seen.append(read_precisions())
            raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert set(seen[0][0].values()) == {"ieee"}
        assert seen[0][1:] == ("highest", False)
        assert read_precisions() == before
    finally:
        torch.set_float32_matmul_precision("highest")


def test_settings_by_the_new_names_are_restored_too(with_cuda):
    operations = devices._find_operations()
    before = read_precisions()
    operations["convolution"].fp32_precision = "ieee"  # from now on the old name cannot be read
    try:
        with full_precision():
            assert operations["rnn"].fp32_precision == "ieee"
        assert operations["convolution"].fp32_precision == "ieee"
        assert operations["rnn"].fp32_precision == "tf32"
    finally:
        operations["convolution"].fp32_precision = before[0]["convolution"]
    assert read_precisions() == before


SEEN: list[tuple[bool, str]] = []  # whether cuDNN was on, and the precision of convolutions, at every call


class Watching(nn.Module):
    """A network that notes torch's settings whenever it is called."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x):
        SEEN.append((torch.backends.cudnn.enabled, devices._find_operations()["convolution"].fp32_precision))
        out = self.body(x)
        return out[0][:, -1] if isinstance(out, tuple) else out


@pytest.mark.parametrize(("body", "cudnn"), [(nn.Linear(3, 2), True), (nn.LSTM(3, 2, batch_first=True), False)])
def test_only_rnns_lose_cudnn_and_measurements_have_no_tf32(body, cudnn, with_cuda):
    SEEN.clear()
    model = Watching(body)
    inputs = torch.linspace(-1, 1, 24).reshape(4, 2, 3)
    data = (inputs if not cudnn else inputs[:, 0]), torch.tensor([0, 1, 0, 1])
    objective = Objective(model, data)
    objective.gradient(objective.theta)
    assert set(SEEN) == {(True, "ieee")}
    SEEN.clear()
    eigenpairs(objective.hessian(objective.theta, "recompute"), k=1)
    assert set(SEEN) == {(cudnn, "ieee")}
    assert torch.backends.cudnn.enabled


def test_threads_share_one_change():
    changes = []

    class Change:
        def __enter__(self):
            changes.append("on")

        def __exit__(self, *_):
            changes.append("off")

    setting, meet = ProcessSetting(Change), threading.Barrier(2, timeout=10)

    def work():
        with setting():
            meet.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert changes == ["on", "off"]


def test_dropout_leaves_the_global_generator_as_it_was():
    state = torch.get_rng_state()
    draws = []
    for _ in range(2):
        with draw_dropout(5, CPU):
            draws.append(nn.functional.dropout(torch.ones(20)))
    assert torch.equal(*draws)
    assert torch.equal(torch.get_rng_state(), state)
