"""Exact losses: torch's values and derivatives where torch is right, closed forms where it is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.nn import functional

from landscape import Objective, eigenpairs
from landscape.losses.exact_losses import ExactLosses


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def labels(classes, *shape):
    return torch.randint(0, classes, shape, generator=torch.Generator().manual_seed(1))


IGNORED = torch.tensor([0, -100, 2, 1])
CASES = {
    "mean": (draw(4, 3), labels(3, 4), functional.cross_entropy, {}),
    "none": (draw(4, 3), labels(3, 4), functional.cross_entropy, {"reduction": "none"}),
    "sum": (draw(4, 3), labels(3, 4), functional.cross_entropy, {"reduction": "sum"}),
    "ignored": (draw(4, 3), IGNORED, functional.cross_entropy, {}),
    "images": (draw(2, 3, 2, 2), labels(3, 2, 2, 2), functional.cross_entropy, {"ignore_index": 1}),
    "weights": (draw(4, 3), labels(3, 4), functional.cross_entropy, {"weight": torch.tensor([1.0, 2.0, 3.0]).double()}),
    "smoothed": (draw(4, 3), labels(3, 4), functional.cross_entropy, {"label_smoothing": 0.1}),
    "probabilities": (draw(4, 3), draw(4, 3).softmax(1), functional.cross_entropy, {}),
    "one class": (draw(4, 1), labels(1, 4), functional.cross_entropy, {}),
    "one example": (draw(3), torch.tensor(1), functional.cross_entropy, {}),
    "binary": (draw(5), labels(2, 5).double(), functional.binary_cross_entropy_with_logits, {}),
    "binary, wide": (30 * draw(5), labels(2, 5).double(), functional.binary_cross_entropy_with_logits, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_torch(name):
    inputs, targets, loss, options = CASES[name]

    def total(z):
        return loss(z, targets, **options).sum()

    plain, curved = loss(inputs, targets, **options), hessian(total, inputs)
    with ExactLosses():
        torch.testing.assert_close(loss(inputs, targets, **options), plain, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(hessian(total, inputs), curved, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("margin", [1.0, 30.0, 50.0, 300.0])
def test_curvature_far_beyond_rounding(margin):
    """Two classes: d2 loss = p (1 - p) for the margin, whichever of the classes is the right one."""
    z = torch.tensor([[margin, 0.0]], dtype=torch.float64)
    expected = np.exp(-margin) / (1 + np.exp(-margin)) ** 2
    with ExactLosses():
        two = hessian(lambda z: functional.cross_entropy(z, torch.tensor([0])), z)[0, :, 0]
        one = hessian(lambda z: functional.binary_cross_entropy_with_logits(z, torch.ones(1).double()), z[0, :1])
    np.testing.assert_allclose(two, expected * np.array([[1.0, -1.0], [-1.0, 1.0]]), rtol=1e-12)
    assert float(one) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", [nn.BCEWithLogitsLoss(), functional.binary_cross_entropy_with_logits])
def test_a_binary_classifier_in_float32(loss):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 40.0)
    data = torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0], [0.0]])
    objective = Objective(model, data, loss)
    found = eigenpairs(objective.hessian(objective.theta), k=1).values[0]
    assert found == pytest.approx(np.exp(-40.0), rel=1e-5)
