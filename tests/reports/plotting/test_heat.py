"""Heat maps and small multiples."""

from __future__ import annotations

import numpy as np
import pytest

from reports.plotting.heat import draw_heat, find_span, make_panels, write_values


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (4, (1, 4)), (5, (2, 4)), (8, (2, 4))])
def test_there_are_as_many_panels_as_asked_for(count: int, shape: tuple[int, int]) -> None:
    figure, axes = make_panels(count)
    assert len(axes) == len(figure.axes) == count
    assert axes[0].get_gridspec().get_geometry() == shape


def test_labels_are_thinned_and_stay_at_their_cells() -> None:
    _, (axes,) = make_panels(1)
    draw_heat(axes, np.zeros((3, 25)), range(100, 125), "abc", (0, 1))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [str(100 + 3 * place) for place in range(9)]
    assert axes.get_xticks().tolist() == list(range(0, 25, 3))
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b", "c"]


def test_numbers_in_cells_can_be_read_on_any_colour() -> None:
    _, (axes,) = make_panels(1)
    write_values(axes, draw_heat(axes, [[0.0, 1.0, np.nan]], "abc", "d", (0, 1)), ".1f")
    assert [(text.get_text(), text.get_color()) for text in axes.texts] == [("0.0", "w"), ("1.0", "k")]


def test_a_span_knows_only_numbers() -> None:
    assert find_span([[np.nan, 2.0], [np.inf, -1.0]]) == (-1.0, 2.0)
    assert find_span([[np.nan]]) is None
    assert find_span([]) is None
