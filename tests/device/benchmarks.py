"""Times of common work on a device: gradients, Hessian products, the largest eigenvalue, a round of training."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from landscape import Objective, eigenpairs
from landscape.runtime.device import CPU
from training import config
from training.engine.federation import Federation
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.models import networks

IMAGES = 1024
MODELS = ("lenet64", "resnet18_bn")
REPEATS = 3
TRAINING = {
    "data": {"name": "synthetic", "examples": 4000, "test_examples": 500, "classes": 10, "shape": [3, 32, 32]},
    "partition": {"clients": 20},
    "model": {"name": "lenet64"},
    "local": {"batch_size": 64, "steps": 8},
    "rounds": {"participants": 4},
}


def measure(device: torch.device) -> dict[str, dict[str, float]]:
    """Seconds (medians of REPEATS) and, on a GPU, the peak of memory in bytes, by name of the work."""
    found: dict[str, dict[str, float]] = {}
    for name in MODELS:
        found |= _measure_model(name, device)
    federation = Federation(config.validate(TRAINING), device=device)
    state = federation.begin()
    found["a round, one client at a time"] = _time(
        device, lambda: federation.advance(state, Serial(federation.trainer))
    )
    if device != CPU:
        executor = Processes(federation.trainer, 2)
        try:
            found["a round, two processes"] = _time(device, lambda: federation.advance(state, executor))
        finally:
            executor.close()
    return found


def _measure_model(name: str, device: torch.device) -> dict[str, dict[str, float]]:
    generator = torch.Generator().manual_seed(0)
    model = networks.build(name, classes=10, channels=3, size=32, seed=0)
    data = torch.randn(IMAGES, 3, 32, 32, generator=generator), torch.arange(IMAGES) % 10
    objective = Objective(model, data, device=device, chunk_size=256)
    operator = objective.hessian(objective.theta)
    v = torch.randn(objective.size, generator=generator).to(device)
    work: dict[str, Callable[[], object]] = {
        "gradient": lambda: objective.gradient(objective.theta),
        "Hessian product": lambda: operator @ v,
        "largest eigenvalue": lambda: eigenpairs(operator, k=1, tol=1e-3),
    }
    return {f"{name}: {what}": _time(device, compute) for what, compute in work.items()}


def _time(device: torch.device, work: Callable[[], object]) -> dict[str, float]:
    module = torch.get_device_module(device)
    watched = device != CPU and hasattr(module, "reset_peak_memory_stats")
    if watched:
        module.reset_peak_memory_stats(device)
    seconds = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        work()
        if device != CPU:
            module.synchronize()
        seconds.append(time.perf_counter() - began)
    found = {"seconds": statistics.median(seconds[1:])}  # the first time warms up
    return {**found, "peak_bytes": float(module.max_memory_allocated(device))} if watched else found
