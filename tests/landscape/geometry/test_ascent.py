"""Ascent in a ball or a box: steps, projections, and what it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from landscape.geometry.ascent import ascend, find_steepest, list_halving_steps, project

INF = math.inf


def test_ascent_pieces() -> None:
    assert sorted(list_halving_steps(100)) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert sorted(list_halving_steps(20)) == [5, 9, 12, 14, 16, 18, 19, 20]
    vector = torch.tensor([3.0, 0.0, -4.0])
    assert project(vector, 1.0, 2).tolist() == pytest.approx([0.6, 0, -0.8])
    assert project(vector, 9.0, 2).tolist() == vector.tolist()
    assert project(vector, 1.0, INF).tolist() == [1, 0, -1]
    assert find_steepest(vector, 2).tolist() == pytest.approx([0.6, 0, -0.8])
    assert find_steepest(vector, INF).tolist() == [1, 0, -1]
    assert find_steepest(torch.zeros(3), 2).tolist() == [0, 0, 0]
    tiny = torch.full((4,), 1e-30)  # its square is zero in single precision
    assert find_steepest(tiny, 2).tolist() == pytest.approx([0.5] * 4)


def test_ascent_keeps_the_best_point_it_met() -> None:
    """A narrow peak next to the start: big steps jump over it, so only memory can bring it back."""

    def climb(point: Tensor) -> tuple[float, Tensor]:
        return float(-point.abs().sum()), -point.sign()

    start = torch.tensor([0.01])
    best, spent = ascend(climb, start, 1.0, steps=4)
    assert float(best.abs()) <= 0.01
    assert spent == 5


def scripted(losses: list[float]) -> tuple[Callable[[Tensor], tuple[float, Tensor]], list[float]]:
    """A climb whose losses are given in advance and whose gradient always points right; and the points it saw."""
    seen: list[float] = []

    def climb(point: Tensor) -> tuple[float, Tensor]:
        seen.append(float(point))
        return losses[len(seen) - 1], torch.ones(1)

    return climb, seen


def test_ascent_halves_its_steps_when_too_few_rise() -> None:
    climb, seen = scripted([9.0, 1, 0, 1, 0, 0, 3, 3])  # checkpoint after step 5 of 20
    with pytest.raises(IndexError):
        ascend(climb, torch.tensor([-0.5]), 1.0, steps=20)
    # steps of 2 end at the wall; the first step after the checkpoint is 3/4 of 1, from the best point, at rest
    assert seen[:8] == pytest.approx([-0.5, 0.625, 1, 1, 1, 1, 0.25, 1])


def test_ascent_halves_its_steps_when_the_best_stays_behind() -> None:
    climb, seen = scripted([9.0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0])  # rising, but never to where it began
    with pytest.raises(IndexError):
        ascend(climb, torch.tensor([-0.5]), 1.0, steps=20)
    assert seen[6:11] == pytest.approx([1, 1, 1, 1, 0.25])  # checkpoints after steps 5 and 9


def test_ascent_ends_where_the_loss_is_not_finite() -> None:
    climb, seen = scripted([0.0, 1.0, INF])
    best, spent = ascend(climb, torch.tensor([-0.5]), 1.0, steps=20)
    assert (float(best), spent) == (seen[2], 3)
