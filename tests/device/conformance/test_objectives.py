"""Losses, derivatives, spectra and surfaces on a device are those of the CPU, up to rounding."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional

from landscape import (
    MatrixOperator,
    Objective,
    SumOperator,
    barrier,
    directions,
    eigenpairs,
    line,
    plane,
    power_iteration,
    sharpness,
    spectral_density,
    trace,
)
from landscape.geometry.curves import curve
from landscape.runtime.device import describe_device, find_device
from tests.landscape import cases

NAMES = sorted(cases.CASES)


@pytest.fixture
def make(device, dtype):
    """The objective of a case on the CPU and on the device."""

    def build(name, **options):
        case = cases.make(name)
        on_cpu = Objective(case.model, case.data, case.loss, dtype=dtype, **options)
        return on_cpu, Objective(case.model, case.data, case.loss, dtype=dtype, device=device, **options)

    return build


@pytest.mark.parametrize("name", NAMES)
def test_loss_gradient_hessian_and_gauss_newton(name, make, device, close):
    on_cpu, there = make(name, chunk_size=8, weight_decay=0.1)
    theta, v = on_cpu.theta, torch.linspace(-1, 1, on_cpu.size).to(on_cpu.dtype)
    assert there.theta.device == device
    assert close(there.loss(theta), on_cpu.loss(theta))
    if name != "regression":
        assert there.error(theta) == on_cpu.error(theta)
    gradient = there.gradient(theta)
    assert gradient.device == device
    assert close(gradient, on_cpu.gradient(theta))
    for engine in ("retained", "recompute", "forward"):
        if engine == "forward" and (name == "recurrent" or on_cpu.dtype == torch.float32):
            continue  # torch's forward mode knows no LSTM, and makes numbers of float64 on the device by itself
        product = there.hessian(theta, engine) @ v
        assert product.device == device
        assert close(product, on_cpu.hessian(theta, engine) @ v, loosely=10)
    assert close(there.gauss_newton(theta) @ v, on_cpu.gauss_newton(theta) @ v, loosely=10)


@pytest.mark.parametrize("policy", ["frozen", "recomputed", "interpolated", "batch"])
def test_policies_of_norm_layers(policy, make, close):
    on_cpu, there = make("convolution", batchnorm=policy, chunk_size=16)
    theta = on_cpu.theta
    assert close(there.loss(theta), on_cpu.loss(theta))
    v = torch.linspace(-1, 1, on_cpu.size).to(on_cpu.dtype)
    assert close(there.hessian(theta) @ v, on_cpu.hessian(theta) @ v, loosely=10)


def test_subsets_have_the_same_examples_and_errors(make, close):
    on_cpu, there = make("mlp", chunk_size=8)
    own, other = (one.subset(20, seed=1).evaluate(on_cpu.theta) for one in (there, on_cpu))
    assert close(own.loss, other.loss)
    assert close(own.standard_error, other.standard_error, loosely=10)
    assert own.error == other.error
    assert close(own.error_standard_error, other.error_standard_error)
    for part, twin in zip(there.split(30), on_cpu.split(30), strict=True):
        assert close(part.loss(on_cpu.theta), twin.loss(on_cpu.theta))


def test_losses_with_weights_and_of_one_s_own(device, dtype, close):
    case = cases.make("mlp")
    losses = {
        "weighted": {"loss": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]).to(dtype))},
        "smoothed": {"loss": nn.CrossEntropyLoss(label_smoothing=0.1, reduction="sum")},
        "own": {"loss": lambda outputs, targets: functional.cross_entropy(outputs, targets)},
        "batch": {
            "batch_loss": lambda model, batch: (
                functional.cross_entropy(model(batch[0]), batch[1], reduction="none"),
                len(batch[1]),
            )
        },
    }
    for options in losses.values():
        on_cpu = Objective(case.model, case.data, dtype=dtype, **options)
        there = Objective(case.model, case.data, dtype=dtype, device=device, **options)
        assert close(there.gradient(on_cpu.theta), on_cpu.gradient(on_cpu.theta))
        assert close(
            there.subset(30).evaluate(on_cpu.theta).standard_error or 0.0,
            on_cpu.subset(30).evaluate(on_cpu.theta).standard_error or 0.0,
            loosely=10,
        )


@pytest.mark.parametrize("name", ["mlp", "convolution", "attention"])
def test_eigenpairs_trace_and_density(name, make, close):
    on_cpu, there = (one.hessian(one.theta) for one in make(name, chunk_size=16))
    for options in ({"k": 3}, {"k": 2, "which": "smallest"}):
        found, expected = (eigenpairs(one, tol=1e-4, **options) for one in (there, on_cpu))
        assert found.vectors.device == there.device
        assert close(found.values, expected.values, loosely=1e4)  # squares of residuals apart
    again = eigenpairs(there, k=3, start=eigenpairs(on_cpu, k=3, tol=1e-4).vectors, tol=1e-4)
    assert close(again.values, eigenpairs(on_cpu, k=3, tol=1e-4).values, loosely=1e4)
    assert close(power_iteration(there, k=2).values, power_iteration(on_cpu, k=2).values, loosely=1e4)
    assert close(trace(there, probes=8).value, trace(on_cpu, probes=8).value, loosely=10)
    assert close(
        trace(there, probes=9, method="hutch++").value, trace(on_cpu, probes=9, method="hutch++").value, loosely=100
    )
    found, expected = (spectral_density(one, steps=6, probes=2) for one in (there, on_cpu))
    assert close(found.nodes, expected.nodes, loosely=1e3)


def test_operators_made_of_others(make, device, dtype, close):
    on_cpu, there = (one.hessian(one.theta) for one in make("mlp"))
    v = torch.linspace(-1, 1, on_cpu.size).to(dtype)
    assert close(SumOperator([there, there], [0.3, 0.7]) @ v, on_cpu @ v, loosely=10)
    assert close(there.dense(), on_cpu.dense(), loosely=10)
    matrix = torch.diag(torch.arange(1.0, 30.0).to(dtype))
    assert close(eigenpairs(MatrixOperator(matrix.to(device)), k=4, seed=1).values, [29, 28, 27, 26], loosely=1e3)
    row = there.to_scipy().matvec(v.double().numpy())
    assert close(row, on_cpu @ v, loosely=10)


def test_surfaces_lines_barriers_and_curves(make, device, close):
    pair = make("convolution", chunk_size=16)
    theta = pair[0].theta
    other = theta + 0.1 * torch.sin(torch.arange(float(len(theta)))).to(theta.dtype)
    found = []
    for objective in pair:
        here = theta.to(objective.device)
        d1, d2 = directions.filter_normalized(objective.layout, here, seed=0)
        assert d1.device == objective.device
        surface = plane(objective, here, d1, d2, steps=3)
        straight = line(objective, here, d1, steps=3)
        between = barrier(objective, theta, other, steps=4)
        bent = curve(objective, theta, other, iterations=2, points=3)
        frame = directions.through_models(here, other.to(objective.device), d1)
        places, _ = directions.project(other.to(objective.device), frame.base, frame.u, frame.v)
        flat = torch.stack([here, other.to(objective.device), d1, d2])
        path = directions.trajectory(flat)
        found.append((surface.loss, straight.loss, between.path.loss, bent.path.loss, places, path.coordinates, d1))
    for own, expected in zip(*found[::-1], strict=True):
        assert close(own, expected, loosely=100)


@pytest.mark.parametrize("kind", ["sam", "asam", "average"])
def test_sharpness(kind, make, close):
    on_cpu, there = (sharpness(one, one.theta, radius=0.05, kind=kind, steps=3) for one in make("mlp"))
    assert close(there.value, on_cpu.value, loosely=1e4)
    assert close(there.gradient_norm, on_cpu.gradient_norm, loosely=10)


def test_names_of_the_device(device):
    assert find_device(str(device)) == find_device(device) == device
    assert find_device(device.type).type == device.type
    assert describe_device(device)["type"] == device.type


def test_another_device_s_model_is_moved(device, dtype, close):
    case = cases.make("mlp")
    objective = Objective(case.model, case.data, dtype=dtype)
    moved = dataclasses.replace(case, model=case.model.to(dtype).to(device))
    assert Objective(moved.model, case.data).device == device
    back = Objective(moved.model, case.data, device="cpu")
    assert back.loss(objective.theta) == objective.loss(objective.theta)
