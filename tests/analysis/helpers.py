"""What tests of several studies need: asking a question, plain losses and Hessians, and checks that hold for all."""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Sequence
from pathlib import Path

import h5py
import pytest
import torch
import xarray as xr
from torch import Tensor

from analysis import runner, store
from analysis.store import Answer
from analysis.study import Piece, Study
from analysis.subjects import Limits, Run, Subject
from training.settings import build


def find_study(name: str) -> Study:
    """A study by name, without importing the others."""
    found = importlib.import_module(f"analysis.studies.{name}").STUDY
    assert isinstance(found, Study)
    return found


def plan(study: Study | str, subjects: Sequence[Subject], out: Path, **settings: object) -> runner.Plan:
    """Plan a question.

    study: the study, or its name.
    settings: those that are not the defaults.
    """
    study = find_study(study) if isinstance(study, str) else study
    return runner.plan(study, build(study.settings, settings, f"study {study.name}"), subjects, out)


def ask_all(study: Study | str, subjects: Sequence[Subject], out: Path, **settings: object) -> Answer:
    """Measure, write and read again: the whole answer."""
    return store.read(runner.carry_out(plan(study, subjects, out, **settings)))


def ask(study: Study | str, subjects: Sequence[Subject], out: Path, **settings: object) -> xr.Dataset:
    """Measure, write and read again: the Dataset of the answer.

    >>> ask("curvature", [run], tmp_path, rounds="last", top=2)  # doctest: +SKIP
    """
    return ask_all(study, subjects, out, **settings).data


def assert_same(one: Answer, other: Answer) -> None:
    """The same question with the same numbers, to the bit."""
    assert one.digest == other.digest
    xr.testing.assert_identical(one.data, other.data)


def outputs(run: Subject, theta: Tensor, inputs: Tensor) -> Tensor:
    """The outputs of the network at theta, with its tensors cut out by hand."""
    return _call(copy.deepcopy(run.model).double().eval(), theta, inputs)


def _call(model: torch.nn.Module, theta: Tensor, inputs: Tensor) -> Tensor:
    tensors, start = {}, 0
    for name, parameter in model.named_parameters():
        tensors[name] = theta[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    found = torch.func.functional_call(model, tensors, (inputs,))
    assert isinstance(found, Tensor)
    return found


def loss_at(run: Subject, theta: Tensor, client: int | None = None) -> Tensor:
    """Mean cross-entropy on the training data of a client, or of everyone."""
    inputs, labels = run.examples("train", client)
    return torch.nn.functional.cross_entropy(outputs(run, theta, inputs), labels)


def gradient_at(run: Subject, theta: Tensor, client: int | None = None) -> Tensor:
    """The gradient of `loss_at`."""
    w = theta.clone().requires_grad_()
    return torch.autograd.grad(loss_at(run, w, client), w)[0]


def dense(run: Subject, theta: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """The Hessian of the mean cross-entropy, entry by entry."""
    model = copy.deepcopy(run.model).double().eval()

    def loss(w: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(_call(model, w, inputs), labels)

    found = torch.func.hessian(loss)(theta.double())
    assert isinstance(found, Tensor)
    return found


def check_reading(study: Study | str, run: Run, out: Path, **settings: object) -> None:
    """Every axis has a name, for xarray and for HDF5, and every array a description and units."""
    path = runner.carry_out(plan(study, [run], out, **settings))
    found = store.read(path).data
    with xr.open_dataset(path, engine="h5netcdf") as data:
        assert set(data.variables) == set(found.variables)
        assert not any(str(dim).startswith("phony") for dim in data.sizes)
        for name, variable in found.variables.items():
            assert data[name].dims == variable.dims
            assert data[name].attrs["units"]
            assert data[name].attrs["long_name"]
    with h5py.File(path) as file:
        assert all(len(dim) == 1 for data in file.values() if not data.is_scale for dim in data.dims)


def check_interruption(study: Study | str, run: Run, out: Path, **settings: object) -> None:
    """Stopped in the middle and asked again, or asked of two workers: the same content."""
    study = find_study(study) if isinstance(study, str) else study
    measure, calls = study.measure, 0

    def fail_once(subject: Subject, settings: object, piece: Piece, earlier: Sequence[xr.Dataset]) -> xr.Dataset:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return measure(subject, settings, piece, earlier)

    whole = ask_all(study, [run], out / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        ask(dataclasses.replace(study, measure=fail_once), [run], out / "broken", **settings)
    assert plan(study, [run], out / "broken", **settings).done == 1
    assert_same(ask_all(study, [run], out / "broken", **settings), whole)
    assert_same(ask_all(study, [Run(run.path, limits=Limits(workers=2))], out / "two", **settings), whole)
