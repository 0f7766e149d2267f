"""Draws in which every example has one chance, and the standard errors of ratios over them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from landscape import Objective
from landscape.objectives.sampling import (
    Draw,
    _find_rounding_variance,
    _round_shares,
    assume_unstratified,
    draw,
    ratio_error,
)
from tests.truth.coverage import SETTINGS

LABELS = torch.tensor([0] * 17 + [1] * 9 + [2] * 13 + [3] * 1)


def draws(count: int, seeds: int) -> list[Draw]:
    return [draw(LABELS, 40, count, np.random.default_rng(seed)) for seed in range(seeds)]


@pytest.mark.parametrize("count", [3, 10, 39])
def test_every_example_has_the_same_chance(count: int) -> None:
    found = draws(count, 4000)
    assert {len(one.index) for one in found} == {count}
    assert all((np.diff(one.index.numpy()) > 0).all() for one in found)
    chosen = np.zeros(40)
    for one in found:
        chosen[one.index.numpy()] += 1
    share = count / 40
    assert np.abs(chosen / 4000 - share).max() < 5 * np.sqrt(share * (1 - share) / 4000)


def test_classes_get_their_share_rounded_and_rare_ones_go_together() -> None:
    for one in draws(10, 50):
        (_, *sizes), counts = one.sizes, np.bincount(one.strata)
        assert sorted([*sizes, one.sizes[0]]) == [10, 13, 17]  # the single example of class 3 joins the nine of class 1
        assert (np.abs(counts - one.sizes * 10 / 40) < 1).all()
        assert one.population == 40
    assert (draws(40, 1)[0].index == torch.arange(40)).all()
    assert len(draws(3, 1)[0].sizes) == 1  # too few for two examples of each


def test_rounded_shares_are_right_on_average() -> None:
    shares = np.array([2.3, 4.45, 1.0, 2.25])
    shifts = (np.arange(2000) + 0.5) / 2000
    quotas = np.array([_round_shares(shares, shift) for shift in shifts])
    assert (quotas.sum(axis=1) == 10).all()
    np.testing.assert_allclose(quotas.mean(axis=0), shares, atol=1e-3)
    means = np.array([1.0, -2.0, 0.5, 3.0])
    assert _find_rounding_variance(shares, means) == pytest.approx(float((quotas @ means).var()), rel=1e-2)
    assert _find_rounding_variance(np.array([2.0, 5.0]), np.array([1.0, 9.0])) == pytest.approx(0, abs=1e-20)


def test_textbook_errors() -> None:
    """The mean of a simple random sample, and the mean over strata whose shares are whole numbers."""
    rng = np.random.default_rng(0)
    y, ones = rng.normal(size=20), np.ones(20)
    assert ratio_error(y, ones, assume_unstratified(20, 100)) == pytest.approx(np.sqrt(0.8 * y.var(ddof=1) / 20))
    strata = np.repeat([0, 1], [8, 12])
    drawn = Draw(torch.arange(20), strata, np.array([40, 60]))
    within = [0.8 * part.var(ddof=1) / len(part) for part in (y[:8], y[8:])]
    assert ratio_error(y, ones, drawn) == pytest.approx(np.sqrt(0.4**2 * within[0] + 0.6**2 * within[1]))
    assert ratio_error(y, ones, assume_unstratified(20, 20)) == 0


def test_a_constant_ratio_has_no_error_and_huge_sums_do_not_overflow() -> None:
    counts = np.arange(1.0, 11.0)
    assert ratio_error(3 * counts, counts, assume_unstratified(10, 50)) == pytest.approx(0, abs=1e-15)
    spread = counts % 3
    small = ratio_error(spread, counts, assume_unstratified(10, 50))
    assert small is not None
    assert ratio_error(1e200 * spread, counts, assume_unstratified(10, 50)) == pytest.approx(1e200 * small)
    assert ratio_error(spread[:1], counts[:1], assume_unstratified(1, 50)) is None
    broken = ratio_error(np.where(counts > 5, np.inf, 1.0), counts, assume_unstratified(10, 50))
    assert broken is not None
    assert np.isnan(broken)


def scores(objective: Objective, size: int, seeds: range) -> dict[str, NDArray[np.float64]]:
    """(estimate - truth) / standard error over subsets, of the loss and of the error."""
    theta = objective.theta
    whole = objective.evaluate(theta)
    found = [objective.subset(size, seed=seed).evaluate(theta) for seed in seeds]
    z = {"loss": np.array([(one.loss - whole.loss) / (one.standard_error or np.nan) for one in found])}
    if whole.error is not None:
        z["error"] = np.array([(one.error - whole.error) / (one.error_standard_error or np.nan) for one in found])
    return z


@pytest.mark.parametrize("name", SETTINGS)
def test_scores_are_standard_in_every_setting(name: str) -> None:
    """A quick look at what `make truth` counts over a thousand seeds: 60 scores have a spread of 1 +- .09."""
    for quantity, z in scores(SETTINGS[name](), 300, range(60)).items():
        assert 0.72 < np.sqrt(np.mean(z**2)) < 1.3, quantity


def test_a_subset_of_a_subset_speaks_of_the_first_population() -> None:
    objective = SETTINGS["one_value"]()
    once = objective.subset(600)
    twice = once.subset(200)
    assert (twice.count, twice.population) == (200, 2000)
    error = twice.evaluate(objective.theta).standard_error
    assert error is not None
    assert abs(twice.loss(objective.theta) - objective.loss(objective.theta)) < 4 * error


def test_where_single_examples_are_not_known_there_is_no_standard_error() -> None:
    x, y = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(50) % 3
    model = torch.nn.Linear(3, 3).double()

    def mean(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets)

    def sums(network: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, int]:
        return torch.nn.functional.cross_entropy(network(batch[0]), batch[1], reduction="sum"), len(batch[0])

    scalar = Objective(model, (x, y), mean).subset(20)
    found = scalar.evaluate(scalar.theta)
    assert found.standard_error is None
    assert found.error_standard_error is not None  # of which single predictions are known
    general = Objective(model, (x, y), batch_loss=sums).subset(20)
    assert general.evaluate(general.theta).standard_error is None
