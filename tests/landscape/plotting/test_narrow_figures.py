"""Figures as wide as a column of a paper: texts are broken or shortened where they would overlap."""

from __future__ import annotations

import pytest
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.lines import Line2D

from landscape.plotting.relief import make_reliefs
from landscape.plotting.style import ROUNDS, WIDTHS, break_line, fit_panels, label_axes, make_canvas, use_width
from landscape.plotting.style import wrap_labels as wrap


def test_panels_with_a_bar_of_their_own_lie_one_below_the_other() -> None:
    with use_width(WIDTHS["icml"]):
        assert fit_panels(1, 2, 9.4, 3.5)[:2] == (1, 2)
        assert fit_panels(1, 2, 9.4, 3.5, narrowest=2.4)[:2] == (2, 1)
    with use_width(WIDTHS["neurips"]):
        assert fit_panels(1, 2, 9.4, 3.5, narrowest=2.4)[:2] == (1, 2)


@pytest.mark.parametrize(
    ("text", "before", "broken"),
    [
        ("mean of $||g_k - g||^2$", " (", "mean of\n$||g_k - g||^2$"),
        ("FedAvg (solid), lowest loss 1.5", ", ", "FedAvg (solid),\nlowest loss 1.5"),
        ("$a - b$", " (", "$a - b$"),
        ("one\ntwo three", " (", "one\ntwo three"),
    ],
)
def test_lines_are_broken_outside_formulas(text: str, before: str, broken: str) -> None:
    assert break_line(text, before) == broken


def test_titles_and_labels_of_narrow_panels_fit() -> None:
    with use_width(WIDTHS["icml"]):
        figure, panels = make_canvas(2, 2, width=7.2, height=5.6)
    for axes in panels:
        axes.plot([0, 1])
        label_axes(axes, "direction 1 (filter-normalised)", "loss", "error of the server's perturbation of models")
    wrap(figure)
    figure.draw_without_rendering()
    for axes in panels:
        room = axes.get_window_extent().width
        assert axes.title.get_text().count("\n") == 1
        assert axes.xaxis.label.get_window_extent().width <= room
        assert axes.xaxis.label.get_text() == "direction 1"  # in two lines it would be too long still


def test_narrow_reliefs_have_short_names_and_leave_the_height_to_the_colour_bar() -> None:
    with use_width(WIDTHS["icml"]):
        figure, (axes,) = make_reliefs(1)
    axes.set_xlabel("direction 1 (filter-normalised)", fontsize=7)
    axes.set_zlabel("loss")
    key = Line2D([], [], label="FedASAM + SWA (net), the lowest loss of all is 0.15")
    legend = figure.legend(handles=[key], loc="outside upper left")
    figure.colorbar(ScalarMappable(cmap=colormaps["viridis"]), ax=axes)
    wrap(figure)
    assert (axes.get_xlabel(), axes.get_zlabel()) == ("direction 1", "")
    assert legend.get_texts()[0].get_text() == "FedASAM + SWA (net),\nthe lowest loss of all is 0.15"


def test_rounds_are_whole_numbers() -> None:
    figure, (axes,) = make_canvas()
    axes.plot([1, 2, 3], [0, 1, 2])
    label_axes(axes, ROUNDS, "accuracy")
    figure.draw_without_rendering()
    assert all(float(place).is_integer() for place in axes.get_xticks())
