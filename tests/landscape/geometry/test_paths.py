"""Interpolation and barriers against parabolas and hand-made BatchNorm passes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.geometry.paths import barrier, interpolate
from landscape.geometry.surface import plane
from landscape.objectives.objective import Objective
from landscape.rng import normal, torch_generator
from tests.landscape.geometry.problems import regression

LABELS = torch.randint(0, 3, (37,), generator=torch_generator(0, "labels"))
INPUTS = normal((37, 4), 0, "inputs")


def classifier(dtype: torch.dtype = torch.float64, **options: Any) -> Objective:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)
    return Objective(model, (INPUTS.to(dtype), LABELS), chunk_size=8, **options)


def of_one_weight(function: Any, **options: Any) -> Objective:
    """An objective L(w) = function(w) of a single weight, so that paths have losses known by hand."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    data = (torch.ones(3, 1, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64))
    return Objective(model, data, lambda outputs, _: function(outputs[:, 0]), **options)


def point(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("low", "high", "steps"), [(0.0, 1.0, 31), (-1.0, 2.0, 31), (-0.2, 1.2, 15), (0.0, 1.0, 2)])
def test_end_points_are_the_models_to_the_bit(dtype: torch.dtype, low: float, high: float, steps: int) -> None:
    objective = classifier(dtype)
    a, b = (objective.theta + normal((2, objective.size), 2).to(dtype)).to(dtype)
    found = interpolate(objective, a, b, low=low, high=high, steps=steps)
    assert found.error is not None
    for mark, model in ((0.0, a), (1.0, b)):
        (place,) = np.flatnonzero(found.x == mark)
        assert found.loss[place] == objective.loss(model)
        assert found.error[place] == objective.error(model)
    inside = int(steps // 3)
    there = (1 - found.x[inside]) * a.double() + found.x[inside] * b.double()
    assert found.loss[inside] == pytest.approx(objective.loss(there), rel=1e-5 if dtype == torch.float32 else 1e-12)
    assert found.done.all()


def test_an_interpolation_of_a_parabola_is_a_parabola() -> None:
    objective = of_one_weight(torch.square)
    found = interpolate(objective, point(2.0), point(-1.0), low=-1.0, high=2.0, steps=7)
    np.testing.assert_allclose(found.loss, (2 - 3 * found.x) ** 2, atol=1e-14)
    assert found.error is None


def test_the_three_barriers_of_a_cap_off_the_grid() -> None:
    # L(w) = 2 - (w - 0.37)^2 + 0.5 w; the excess over the chord is x (1 - x), largest at 1/2
    objective = of_one_weight(lambda w: 2 - (w - 0.37) ** 2 + 0.5 * w)
    found = barrier(objective, point(0.0), point(1.0), steps=4, refine=20)
    at = [2 - 0.37**2, 2 - 0.63**2 + 0.5]
    top = 2 + 0.5 * 0.37 + 0.25**2  # at w = 0.37 + 0.25
    assert found.loss.where == pytest.approx(0.62, abs=1e-3)
    assert found.loss.linear_where == pytest.approx(0.5, abs=1e-3)
    assert found.loss.linear == pytest.approx(0.25, abs=1e-6)
    assert found.loss.mean == pytest.approx(top - sum(at) / 2, abs=1e-6)
    assert found.loss.max == pytest.approx(top - max(at), abs=1e-6)
    assert found.error is None
    assert np.isnan(found.refined[:, 2]).all()
    assert 20 < len(found.refined) <= 40
    np.testing.assert_allclose(found.refined[:, 1], 2 - (found.refined[:, 0] - 0.37) ** 2 + 0.5 * found.refined[:, 0])
    assert (np.diff(found.refined[:, 0]) > 0).all()
    coarse = barrier(objective, point(0.0), point(1.0), steps=4, refine=0)
    assert coarse.refined.shape == (0, 3)
    assert coarse.loss.linear == pytest.approx(2 / 9, abs=1e-12)  # the grid alone: x = 1/3
    assert found.loss.linear > coarse.loss.linear


def test_the_default_refinement_finds_a_cap_within_a_hundredth_of_a_grid_step() -> None:
    objective = of_one_weight(lambda w: -((w - 0.6123) ** 2))
    found = barrier(objective, point(0.0), point(1.0), steps=11)
    assert abs(found.loss.where - 0.6123) < 0.01
    assert len(found.refined) <= 16


def test_a_path_that_only_falls_or_sags_has_no_barrier() -> None:
    found = barrier(of_one_weight(torch.square), point(2.0), point(0.5), steps=5)
    assert found.loss.linear == 0.0
    assert found.loss.max == 0.0
    assert found.loss.where == 0.0
    assert found.loss.mean == pytest.approx((4 - 0.25) / 2)
    level = barrier(of_one_weight(torch.square), point(0.3), point(0.3))
    assert level.loss.linear == pytest.approx(0.0, abs=1e-15)
    assert level.loss.max == pytest.approx(0.0, abs=1e-15)


def test_a_peak_between_the_first_two_points_is_found() -> None:
    objective = of_one_weight(lambda w: torch.exp(-(((w - 0.1) / 0.1) ** 2)))
    found = barrier(objective, point(0.0), point(1.0), steps=3, refine=12)
    assert found.loss.where == pytest.approx(0.1, abs=2e-2)
    assert found.loss.max > 0.6


def test_errors_have_their_own_barriers() -> None:
    objective = classifier(workers=2)
    a, b = objective.theta + 2 * normal((2, objective.size), 3)
    counts: list[tuple[int, int]] = []
    found = barrier(objective, a, b, steps=7, refine=3, progress=lambda done, total: counts.append((done, total)))
    assert counts == [(done, 13) for done in range(1, 14)]
    assert found.path.error is not None
    assert found.error is not None
    x = np.concatenate([found.path.x, found.refined[:, 0]])
    for height, values, ends in (
        (found.loss, np.concatenate([found.path.loss, found.refined[:, 1]]), [objective.loss(a), objective.loss(b)]),
        (
            found.error,
            np.concatenate([found.path.error, found.refined[:, 2]]),
            [objective.error(a), objective.error(b)],
        ),
    ):
        excess = values - (1 - x) * ends[0] - x * ends[1]
        assert height.linear == pytest.approx(excess.max(), abs=1e-15)
        assert height.mean == values.max() - sum(ends) / 2
        assert height.max == values.max() - max(ends)
        assert values[x == height.where].max() == values.max()
    for place, loss, error in found.refined:
        there = (1 - place) * a + place * b
        assert (loss, error) == (objective.loss(there), objective.error(there))


def test_an_infinite_loss_makes_infinite_heights_without_refinement() -> None:
    inside = of_one_weight(lambda w: torch.where((w - 0.5).abs() < 0.1, torch.inf, w))
    found = barrier(inside, point(0.0), point(1.0), steps=5)
    assert (found.loss.linear, found.loss.mean, found.loss.max) == (np.inf, np.inf, np.inf)
    assert found.loss.where == 0.5
    assert len(found.refined) == 0
    for bad in (
        lambda w: torch.where(w > 0.9, torch.inf, w),
        lambda w: torch.where((w - 0.5).abs() < 0.1, torch.nan, w),
    ):
        found = barrier(of_one_weight(bad), point(0.0), point(1.0), steps=5)
        assert np.isnan([found.loss.linear, found.loss.max]).all()


def scale_shifted(factor: float) -> tuple[Any, Any]:
    """Two networks of one function: the second has its first layer, and BatchNorm's statistics, scaled."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        first: Any = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=1e-12), nn.ReLU(), nn.Linear(6, 3)).double()
    with torch.no_grad():
        hidden = first[0](INPUTS)
        first[1].running_mean.copy_(hidden.mean(0))
        first[1].running_var.copy_(hidden.var(0))
        second = copy.deepcopy(first)
        second[0].weight.mul_(factor)
        second[0].bias.mul_(factor)
        second[1].running_mean.mul_(factor)
        second[1].running_var.mul_(factor**2)
    return first, second


def by_hand(model: Any, scale: float, mean: Tensor, variance: Tensor) -> float:
    """The loss with the first layer scaled and these statistics, written out."""
    with torch.no_grad():
        hidden = (scale * model[0](INPUTS) - mean) / (variance + 1e-12).sqrt()
        hidden = (hidden * model[1].weight + model[1].bias).relu()
        return float(functional.cross_entropy(model[3](hidden), LABELS))


def test_models_with_statistics_of_their_own_are_refused_under_frozen() -> None:
    first, second = scale_shifted(3.0)
    frozen = Objective(first, (INPUTS, LABELS))
    assert torch.equal(frozen.flatten(copy.deepcopy(first)), frozen.theta)
    for give in (
        frozen.flatten,
        lambda model: barrier(frozen, first, model),
        lambda model: frozen_plane(frozen, model),
    ):
        with pytest.raises(ValueError, match=r"'1.running_mean' differs.*batchnorm='interpolated'"):
            give(second)
    interpolated = Objective(first, (INPUTS, LABELS), batchnorm="interpolated")
    found = barrier(interpolated, first, second, steps=5)
    for end, model in ((0, first), (-1, second)):
        own = float(functional.cross_entropy(model.eval()(INPUTS), LABELS).detach())
        assert found.path.loss[end] == pytest.approx(own, rel=1e-12)
    assert barrier(Objective(first, (INPUTS, LABELS), batchnorm="recomputed"), first, second, steps=5).loss.max < 1e-9
    counted = copy.deepcopy(first)
    counted[1].num_batches_tracked += 5  # not a statistic
    assert torch.equal(frozen.flatten(counted), frozen.theta)


def frozen_plane(objective: Objective, model: Any) -> object:
    return plane(objective, model, torch.ones(objective.size), torch.arange(1.0, objective.size + 1), steps=3)


def test_a_model_that_its_vector_cannot_hold_is_refused() -> None:
    first, _ = scale_shifted(3.0)
    head = Objective(first, (INPUTS, LABELS), parameters="3.*")
    other = copy.deepcopy(first)
    with torch.no_grad():
        other[0].weight += 1
    with pytest.raises(ValueError, match=r"differs from the objective's in '0.weight', which is not part of theta"):
        head.flatten(other)
    other = copy.deepcopy(first)
    other[2] = nn.Tanh()
    with pytest.raises(ValueError, match="the two differ in something that is not a tensor"):
        head.flatten(other)


@pytest.mark.parametrize("batchnorm", ["frozen", "interpolated", "recomputed"])
def test_batchnorm_policies_on_a_scale_shifted_network(batchnorm: str) -> None:
    factor = 3.0
    first, second = scale_shifted(factor)
    objective = Objective(first, (INPUTS, LABELS), batchnorm=batchnorm)
    ends = [
        objective.layout.flatten(one) if batchnorm == "frozen" else objective.flatten(one) for one in (first, second)
    ]
    found = barrier(objective, *ends, steps=5, refine=2)
    mean, variance = first[1].running_mean, first[1].running_var
    own = by_hand(first, 1.0, mean, variance)
    expected = []
    for x in found.path.x:
        scale = 1 - x + x * factor
        statistics = {
            "frozen": (mean, variance),  # those of the first model, wrong for every other point
            # statistics of the mixture are not the mixture of statistics: variances should go with scale^2
            "interpolated": (scale * mean, (1 - x + x * factor**2) * variance),
            "recomputed": (scale * mean, scale**2 * variance),
        }[batchnorm]
        expected.append(by_hand(first, scale, *statistics))
    np.testing.assert_allclose(found.path.loss, expected, rtol=1e-9)
    assert expected[0] == pytest.approx(own, rel=1e-12)
    if batchnorm == "recomputed":
        assert found.loss.linear < 1e-9  # one function all the way
    if batchnorm == "interpolated":
        assert found.path.loss[-1] == pytest.approx(own, rel=1e-9)
        assert abs(found.path.loss[2] - own) > 1e-3
    if batchnorm == "frozen":
        assert abs(found.path.loss[-1] - own) > 1e-2


def test_bad_input_is_refused() -> None:
    objective, a, b, _ = regression()
    with pytest.raises(ValueError, match="end must have 5 entries"):
        interpolate(objective, a, b[1:])
    with pytest.raises(ValueError, match="low < high"):
        interpolate(objective, a, b, low=1.0, high=0.0)
    with pytest.raises(ValueError, match="start has 5 non-finite"):
        barrier(objective, a * torch.nan, b)
    with pytest.raises(ValueError, match="steps must be a whole number, at least 3"):
        barrier(objective, a, b, steps=2)
    with pytest.raises(ValueError, match="refine must be a whole number, at least 0"):
        barrier(objective, a, b, refine=-1)


def test_a_path_beyond_its_ends_has_the_barriers_between_them() -> None:
    objective = classifier()
    a, b = objective.theta + normal((2, objective.size), 2)
    near, far = barrier(objective, a, b, steps=5), barrier(objective, a, b, steps=5, low=-0.5, high=1.25)
    assert far.path.x.tolist() == [-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert far.path.loss[2:7].tolist() == near.path.loss.tolist()
    assert (far.loss, far.error) == (near.loss, near.error)
    for x, loss in zip(far.path.x.tolist(), far.path.loss.tolist(), strict=True):
        assert loss == pytest.approx(objective.loss((1 - x) * a + x * b), rel=1e-12)
    with pytest.raises(ValueError, match="low must be at most 0"):
        barrier(objective, a, b, low=-np.inf)
