"""Segmentation and text in analysis: dense float64 Hessians, subsets, data read by chunks, and every study."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from analysis import catalog
from analysis.subjects import Limits, Run
from landscape import Objective, eigenpairs
from landscape.losses.sources import SourceBatches
from tests.analysis.helpers import ask
from tests.training.tasks.small_tasks import federation, read_all, recipe
from training.data import sources
from training.data.dataset import make
from training.engine.run import train

TASKS = ("maps", "sentences")


def mean_loss(task, outputs, targets):
    return functional.cross_entropy(outputs, targets, ignore_index=255 if task == "maps" else -100)


@pytest.fixture(scope="module", params=TASKS)
def trained(request, tmp_path_factory):
    return request.param, train(recipe(request.param), tmp_path_factory.mktemp("runs"), backend="serial")


def test_the_largest_eigenvalue_and_the_loss_over_ragged_chunks(trained):
    task, path = trained
    run = Run(path, limits=Limits(workers=1, chunk_size=7))
    theta, data = run.point(3), run.federation.dataset
    inputs, targets = read_all(data, "train")
    model = run.model.double().eval()

    def loss(point):
        tensors, start = {}, 0
        for name, parameter in model.named_parameters():
            tensors[name] = point[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()
        return mean_loss(task, torch.func.functional_call(model, tensors, (inputs,)), targets)

    objective = run.objective("train")
    assert len(objective.chunks) > 4
    assert objective.loss(theta) == pytest.approx(float(loss(theta)), rel=1e-13)
    H = torch.autograd.functional.hessian(loss, theta)
    torch.testing.assert_close(objective.hessian(theta).dense(), H, rtol=1e-8, atol=1e-12)
    found = eigenpairs(objective.hessian(theta), k=1, tol=1e-8)
    assert float(found.values[0]) == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-8)


def test_data_larger_than_memory_are_read_by_chunks_with_the_same_results(trained, monkeypatch):
    _, path = trained
    run = Run(path, limits=Limits(workers=2, chunk_size=7))
    theta = run.point(3)
    held = run.objective("train")
    monkeypatch.setattr(sources, "MOST_HELD", 0)
    read = Run(path, limits=Limits(workers=2, chunk_size=7)).objective("train")
    assert isinstance(read.chunks, SourceBatches)
    assert read.count == held.count
    for one, two in ((held, read), *zip(held.split(11), read.split(11), strict=True)):
        assert one.evaluate(theta) == two.evaluate(theta)
        assert torch.equal(one.gradient(theta), two.gradient(theta))
    v = torch.ones(held.size, dtype=torch.float64)
    assert torch.equal(held.hessian(theta).matvec(v), read.hessian(theta).matvec(v))
    some = torch.tensor([3, 0, 17])
    assert held.take(some).loss(theta) == read.take(some).loss(theta)
    assert read.subset(9).evaluate(theta).standard_error > 0


def test_the_standard_error_of_a_subset_counts_valid_pixels_only():
    """On constant losses per pixel the mean is exact, however many pixels of an image are ignored."""
    fed = federation("maps")
    inputs, targets = read_all(fed.dataset, "train")
    objective = Objective(fed.trainer.model, (inputs, targets), fed.dataset.task.loss, dtype=torch.float64)
    theta = torch.zeros(objective.size, dtype=torch.float64)  # every loss is log 3
    part = objective.subset(20).evaluate(theta)
    assert part.loss == pytest.approx(float(np.log(3)), rel=1e-14)
    assert part.standard_error == pytest.approx(0.0, abs=1e-14)
    moved = objective.theta
    deviations = [objective.subset(20, seed=seed).evaluate(moved) for seed in range(60)]
    spread = np.std([one.loss for one in deviations], ddof=1)
    assert np.mean([one.standard_error for one in deviations]) == pytest.approx(spread, rel=0.35)


def test_a_subset_of_label_maps_is_stratified_by_their_most_frequent_label():
    labels = torch.arange(3).repeat_interleave(torch.tensor([20, 12, 8]))
    targets = labels[:, None, None].repeat(1, 3, 3)
    targets[:, 0, 0] = 255
    images = labels[:, None, None, None].repeat(1, 1, 3, 3).to(torch.uint8)
    data = make("flat", (images, targets), (images[:1], targets[:1]), mean=[0.0], std=[1.0])
    objective = Objective(torch.nn.Conv2d(1, 3, 1), read_all(data, "train"), data.task.loss, dtype=torch.float64)
    drawn = objective.data.draw(10, seed=4)
    assert torch.bincount(labels[drawn.index]).tolist() == [5, 3, 2]


STUDIES = {
    "curvature": {"top": 1},
    "drift": {},
    "forgetting": {},
    "incompatibility": {"clients": 2},
    "interpolation": {"steps": 3},
    "local_global": {"clients": 1},
    "personal": {"strategies": ["global"]},
    "plane": {"steps": 3},
    "robustness": {"corruptions": ["brightness"], "severities": [1]},
    "sensitivity": {"clients": 1},
    "sharpness": {"kinds": ["sam"], "clients": 1},
    "surface": {"steps": 3},
    "training": {},
    "features": {"count": 18, "perplexity": 3.0},
}
REFUSED = {
    ("maps", "features"): "features are shown by the class of an example; segmentation has none",
    ("maps", "personal"): "segmentation has no class of an example",
    ("sentences", "robustness"): "robustness is about images",
}


@pytest.mark.parametrize("study", sorted(STUDIES))
def test_every_study_measures_the_task_or_says_what_it_needs(trained, study, tmp_path):
    task, path = trained
    run = Run(path, limits=Limits(workers=1))
    if (task, study) in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[task, study]) as caught:
            ask(study, [run], tmp_path, **STUDIES[study])
        assert "\n" not in str(caught.value)
        return
    found = ask(study, [run], tmp_path, **STUDIES[study])
    assert found.data_vars


def test_all_studies_are_asked():
    assert set(catalog.STUDIES) == set(STUDIES)
