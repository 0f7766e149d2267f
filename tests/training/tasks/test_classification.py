"""The classification task against plain loops, and what of a run follows a data set's task."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from landscape.results import Evaluation
from tests.training.federations import federation
from training.engine.evaluation import make_test_objective
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.tasks.classification import CLASSIFICATION, check_labels, count_classes

OUTPUTS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 0.1, 0.2], [1.0, 3.0, -2.0], [0.3, 0.2, 0.1]], dtype=torch.float64)
CLASSES = [0, 1, 1, 2]


def by_hand(scores: list[float], weights: list[float]) -> float:
    total = sum(math.exp(score) for score in scores)
    return sum(-weight * math.log(math.exp(score) / total) for score, weight in zip(scores, weights, strict=True))


@pytest.mark.parametrize("mixed", [False, True])
def test_the_loss_is_the_mean_of_minus_log_probabilities(mixed):
    rows = [
        [0.25 if mixed and c == (k + 1) % 3 else (0.75 if mixed else 1.0) * (c == k) for c in range(3)] for k in CLASSES
    ]
    targets = torch.tensor(rows, dtype=torch.float64) if mixed else torch.tensor(CLASSES)
    expected = [by_hand(scores, row) for scores, row in zip(OUTPUTS.tolist(), rows, strict=True)]
    assert CLASSIFICATION.loss(OUTPUTS, targets, reduction="none").tolist() == pytest.approx(expected, rel=1e-14)
    assert float(CLASSIFICATION.loss(OUTPUTS, targets)) == pytest.approx(sum(expected) / 4, rel=1e-14)


def test_metrics():
    wins = [
        max(range(3), key=lambda c: scores[c]) == label for scores, label in zip(OUTPUTS.tolist(), CLASSES, strict=True)
    ]
    assert CLASSIFICATION.count_correct(OUTPUTS, torch.tensor(CLASSES)) == (sum(wins), 4) == (2, 4)
    assert CLASSIFICATION.make_metrics(Evaluation(1.5, None, None, None), None) == {"test_loss": 1.5, "accuracy": None}
    assert CLASSIFICATION.make_metrics(Evaluation(0.5, 0.25, None), None) == {"test_loss": 0.5, "accuracy": 0.75}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "whole numbers, got list"),
        (torch.tensor([0.0, 1.0]), "got torch.float32"),
        (torch.tensor([True, False]), "got torch.bool"),
        (torch.tensor([0, 1, 2]), r"shape \(2,\), one per example; got \(3,\)"),
    ],
)
def test_labels_that_are_none(labels, message):
    with pytest.raises(ValueError, match=message):
        check_labels("mine: train", labels, 2)


def test_classes_are_counted_or_checked():
    assert count_classes("mine", torch.tensor([3, 0])) == 4
    assert count_classes("mine", torch.tensor([3, 0]), 10) == 10
    with pytest.raises(ValueError, match=r"mine: labels must lie in 0\.\.2, got values from 0 to 3"):
        count_classes("mine", torch.tensor([3, 0]), 3)
    with pytest.raises(ValueError, match="below 1,000,000, got 1000000"):
        count_classes("mine", torch.tensor([1_000_000]))


def double(outputs: torch.Tensor, targets: torch.Tensor, *, reduction: str = "mean") -> torch.Tensor:
    return 2 * functional.cross_entropy(outputs, targets, reduction=reduction)


@pytest.mark.parametrize("backend", [Serial, Stacked])
def test_local_training_minimises_the_loss_of_the_data_set_s_task(backend):
    """Twice the loss at half the rate takes the same steps, to the bit, since both factors are powers of two."""
    models = []
    for lr, task in ((0.25, CLASSIFICATION), (0.125, replace(CLASSIFICATION, loss=double))):
        fed = federation(local={"lr": lr})
        fed.trainer.dataset = replace(fed.dataset, task=task)
        models.append(fed.advance(fed.begin(), backend(fed.trainer))[0].w)
    assert torch.equal(*models)


def test_tests_measure_the_loss_of_the_data_set_s_task():
    fed = federation()
    start = fed.begin()
    fed.trainer.dataset = replace(fed.dataset, task=replace(CLASSIFICATION, loss=double))
    doubled = make_test_objective(fed.trainer, fed.tests)
    assert doubled.loss(start.w) == pytest.approx(2 * fed.objective.loss(start.w), rel=1e-12)
