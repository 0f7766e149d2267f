"""Trained curves against closed-form bends and a ring of minima."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from landscape import Objective, barrier, interpolate
from landscape.geometry.curves import curve
from tests.landscape.geometry.problems import regression


@pytest.mark.parametrize("kind", ["bezier", "polygon"])
def test_the_bend_of_a_quadratic_goes_to_its_closed_form(kind: str) -> None:
    objective, a, b, minimum = regression()
    # the gradient of E L(phi(t)) vanishes where E[w_bend phi] = E[w_bend] minimum
    best = {
        "bezier": (minimum / 3 - (a + b) / 10) * 15 / 2,  # E w = 1/3, E w^2 = 2/15, E w w_end = 1/10
        "polygon": (minimum / 2 - (a + b) / 12) * 3,  # E w = 1/2, E w^2 = 1/3, E w w_end = 1/12
    }[kind]
    found = curve(objective, a, b, kind=kind, iterations=600)
    start = float((0.5 * (a + b) - best).norm())
    assert float((found.bend - best).norm()) < 0.05 * start
    straight = interpolate(objective, a, b)
    assert found.mean < 0.9 * straight.loss.mean()
    assert found.path.loss[0] == objective.loss(a)
    assert found.path.loss[-1] == objective.loss(b)


def test_a_hundred_steps_at_the_default_rate_remove_a_barrier() -> None:
    # L = ((x^2 + y^2 - 1))^2: a ring of minima with a hill of height one between two opposite points
    model = nn.Linear(2, 1, bias=False).double()

    def ring(module: Any, batch: Tensor) -> tuple[Tensor, int]:
        return (module.weight.square().sum() - 1).square() * len(batch), len(batch)

    objective = Objective(model, [torch.ones(3, 1)], batch_loss=ring)
    a, b = torch.tensor([[1.0, 0.05], [-1.0, 0.05]], dtype=torch.float64)
    assert barrier(objective, a, b).loss.max > 0.9
    found = curve(objective, a, b)
    assert found.max < 0.2
    assert torch.equal(curve(objective, a, b, seed=0).bend, found.bend)
    assert not torch.equal(curve(objective, a, b, seed=1).bend, found.bend)


@pytest.mark.parametrize("kind", ["bezier", "polygon"])
def test_statistics_along_a_curve_are_those_of_its_points(kind: str) -> None:
    objective, a, b, _ = regression()
    counts: list[tuple[int, int]] = []
    found = curve(
        objective, a, b, kind=kind, iterations=5, points=9, progress=lambda done, total: counts.append((done, total))
    )
    assert counts == [(done, 14) for done in range(1, 15)]
    t = np.linspace(0, 1, 9)[:, None]
    A, B, M = (vector.numpy() for vector in (a, b, found.bend))
    bezier = (1 - t) ** 2 * A + 2 * t * (1 - t) * M + t**2 * B
    polygon = np.where(t <= 0.5, A + 2 * t * (M - A), M + (2 * t - 1) * (B - M))
    points = bezier if kind == "bezier" else polygon
    losses = np.array([objective.loss(torch.from_numpy(theta)) for theta in points])
    np.testing.assert_allclose(found.path.loss, losses, rtol=1e-12)
    pieces = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert found.length == pytest.approx(pieces.sum(), rel=1e-12)
    assert found.arc_mean == pytest.approx(np.average((losses[1:] + losses[:-1]) / 2, weights=pieces), rel=1e-12)
    assert (found.min, found.max) == (found.path.loss.min(), found.path.loss.max())
    assert found.mean == pytest.approx(losses.mean(), rel=1e-12)


@pytest.mark.parametrize("kind", ["bezier", "polygon"])
def test_an_untrained_curve_is_the_straight_path(kind: str) -> None:
    objective, a, b, _ = regression()
    found = curve(objective, a, b, kind=kind, iterations=0, points=6)
    np.testing.assert_allclose(found.path.loss, interpolate(objective, a, b, steps=6).loss, rtol=1e-12)
    assert found.length == pytest.approx(float((b - a).norm()), rel=1e-12)
    assert not found.bend.requires_grad


def test_bad_input_is_refused() -> None:
    objective, a, b, _ = regression()
    with pytest.raises(ValueError, match="did you mean 'bezier'"):
        curve(objective, a, b, kind="bezir")
    with pytest.raises(ValueError, match="two different models"):
        curve(objective, a, a)
    with pytest.raises(ValueError, match="lr must be positive"):
        curve(objective, a, b, lr=0.0)
    with pytest.raises(ValueError, match=r"step \d+ of the curve: .* Try lr below 1e\+200"):
        curve(objective, a, b, lr=1e200)
