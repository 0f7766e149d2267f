"""A thousand random eigenproblems: no result states a residual, an index or a convergence that is not so."""

from __future__ import annotations

import pytest

from tests.truth.eigenproblems import problem, solve, violations, wanted

QUICK, ALL, TOGETHER = 40, 1000, 50


def count_verified(numbers: range) -> int:
    """Check all these problems; how many of them were solved with a verified index."""
    found, verified = {}, 0
    for number in numbers:
        one = problem(number)
        result = solve(one)
        broken = violations(one, result)
        if broken:
            found[one.name] = (broken, result.values / one.unit, wanted(one))
        verified += result.verified
    assert not found
    return verified


def test_a_sample_of_the_thousand():
    assert count_verified(range(QUICK)) > 0.6 * QUICK


@pytest.mark.truth
@pytest.mark.parametrize("first", range(0, ALL, TOGETHER))
def test_a_thousand_problems(first):
    assert count_verified(range(first, first + TOGETHER)) > 0.5 * TOGETHER
