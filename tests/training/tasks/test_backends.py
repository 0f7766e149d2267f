"""Segmentation and text in training: the same bits on every backend and after an interruption."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.training.federations import play
from tests.training.tasks.small_tasks import federation, recipe
from training.engine.run import train
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.storage import checkpoint, run_directory

pytestmark = pytest.mark.usefixtures("forked_workers")

METHODS = ("fedavg", "fedsam", "fedgloss", "fedntd", "moon", "fedbabu", "fedsol")
TASKS = ("maps", "sentences")


@pytest.fixture(scope="module")
def workers():
    executor = Processes(federation("maps").trainer, workers=2)
    yield executor
    executor.close()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", METHODS)
def test_processes_agree_with_serial_to_the_bit(task, name, workers):
    fed = federation(task, name, augment={"flip": True, "padding": 1} if task == "maps" else {})
    workers.assign(fed.trainer)
    one, two = (play(fed, 2, executor)[-1] for executor in (Serial(fed.trainer), workers))
    assert torch.equal(one[0].w, two[0].w)
    assert {**one[1], "seconds": 0} == {**two[1], "seconds": 0}
    assert not torch.equal(one[0].w, fed.begin().w)


@pytest.mark.parametrize("name", METHODS)
def test_vmap_agrees_where_the_loss_is_a_mean_over_examples(name):
    for task, local in (("sentences", {}), ("maps", {"hard_pixels": 0.3})):
        fed = federation(task, name, local=local)
        one, two = (play(fed, 2, executor)[-1][0] for executor in (Serial(fed.trainer), Stacked(fed.trainer)))
        torch.testing.assert_close(one.w, two.w, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="backend vmap: the loss is a mean over the valid pixels of a batch"):
        Stacked(federation("maps", name).trainer)


@pytest.mark.parametrize("task", TASKS)
def test_a_run_is_resumed_to_the_bit(task, tmp_path):
    path = train(recipe(task), tmp_path / "whole", backend="serial")
    again = tmp_path / path.name
    shutil.copytree(path, again)
    shutil.rmtree(run_directory.checkpoint_path(again, 3))
    shutil.rmtree(run_directory.checkpoint_path(again, 2))
    assert train(recipe(task), tmp_path, backend="serial") == again
    one, two = (checkpoint.load(run_directory.checkpoint_path(run, 3)).models for run in (path, again))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
