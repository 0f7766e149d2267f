"""Scales: plain numbers, logarithmic where the range is wide, clipped only where one value would hide all others."""

from __future__ import annotations

import numpy as np
import pytest

from landscape.plotting.scales import choose_decades, make_linear_scale, share_scale


def test_a_wide_range_is_logarithmic_and_a_narrow_one_is_not() -> None:
    narrow, wide = share_scale([np.array([1.2, 9.0])]), share_scale([np.array([0.03, 0.2]), np.array([7.0])])
    assert not narrow.log
    assert narrow.low <= 1.2 < 9.0 <= narrow.high
    assert wide.log
    assert (wide.low, wide.high) == (0.03, 7.0)
    assert wide.heights(np.array([0.1]))[0] == pytest.approx(-1)
    assert narrow.extend == wide.extend == "neither"
    assert narrow.describe() == ""


def test_far_values_are_clipped_and_said() -> None:
    scale = share_scale([np.array([1e-9, 0.5, 1.0, 2.0, 1e12, np.inf, np.nan])])
    assert (scale.low, scale.high) == (0.01, 100.0)  # a hundred medians, and four decades down
    assert scale.extend == "both"
    texts = scale.ticks()[1]
    assert texts[0] == f"< {scale.low:g}"
    assert texts[-1] == f"> {scale.high:g}"
    shown = scale.shown(np.array([0.0, 1.0, np.inf, np.nan]))
    np.testing.assert_array_equal(shown, [scale.low, 1.0, scale.high, np.nan])
    assert scale.describe() == f"clipped for display below {scale.low:g} and above {scale.high:g}"


@pytest.mark.parametrize("values", [[], [np.nan], [0.0, 0.0], [2.5], [-3.0, 4.0], [np.inf], [0.0, 3.0]])
def test_any_numbers_have_a_scale(values: list[float]) -> None:
    for scale in (share_scale([np.array(values)]), make_linear_scale([np.array(values)])):
        assert (np.diff(scale.levels) > 0).all()
        assert np.isfinite(scale.levels).all()
        finite = [value for value in values if np.isfinite(value)]
        assert all(scale.low <= value <= scale.high for value in finite)
        assert np.isfinite(scale.heights(scale.levels)).all()


def test_levels_of_decades_are_plain_and_reach_both_ends() -> None:
    np.testing.assert_allclose(choose_decades(0.3, 4.0), [0.2, 0.5, 1, 2, 5])
    np.testing.assert_allclose(choose_decades(0.2, 5.0), [0.2, 0.5, 1, 2, 5])


def test_ticks_are_thinned_to_whole_decades() -> None:
    scale = share_scale([np.geomspace(0.01, 100, 50)])
    assert scale.ticks(6)[1] == ["0.01", "0.1", "1", "10", "100"]
    assert len(scale.ticks(20)[0]) == 13  # 1, 2 and 5
