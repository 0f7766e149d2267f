"""Axes that suit their numbers."""

from __future__ import annotations

import pytest

from landscape.plotting.style import TICKS, make_canvas
from reports.plotting.fitting import fit_axis


def written(values: list[float]) -> list[str]:
    """What stands beside the y axis of these numbers."""
    figure, (axes,) = make_canvas()
    axes.plot(values)
    fit_axis(axes, "y", values)
    figure.canvas.draw()
    low, high = axes.get_ylim()
    return [
        text.get_text()
        for place, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        if low <= place <= high
    ]


def test_decades_are_written_as_powers_of_ten() -> None:
    said = written([1e-4, 1e-2, 10.0])
    assert {"10⁻⁴", "10⁻²", "10⁰", "10¹"} <= set(said)
    assert not any("$" in one for one in said)


def test_numbers_on_both_sides_of_zero_keep_their_sign() -> None:
    said = written([-100.0, 0.1, 100.0])
    assert {"-10²", "0", "10²"} <= set(said)


@pytest.mark.parametrize("largest", [0.003, 1.0, 7.0, 12345.0])
def test_a_linear_axis_has_few_numbers(largest: float) -> None:
    assert 3 <= len(written([0.5 * largest, largest])) <= TICKS + 1
