"""t-SNE: points of the last round by class, crosses for mistakes, numbers at the classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analysis.store import Answer
from reports.figures.features import FIGURE
from tests.reports.results import features
from tests.reports.results.seeds_and_settings import two_methods


def test_points_classes_and_mistakes(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "features", features.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    axes = drawn.canvas.axes[2]  # run_c, all points times 0.8
    assert axes.get_gid() == "runs:run_c"
    clouds = [np.asarray(one.get_offsets()) for one in axes.collections]  # right and wrong ones of each class
    np.testing.assert_allclose(clouds[0], 0.8 * features.POINTS[:2])
    np.testing.assert_allclose(clouds[3], 0.8 * features.POINTS[3:4])  # a 1 taken for a 7
    assert len(clouds[1]) == 0
    assert [text.get_text() for text in axes.texts] == ["0", "1", "7"]
    colors = {tuple(one.get_edgecolor()[0]) for one in axes.collections[::2]}
    assert len(colors) == 3
    assert len({one.get_sizes()[0] for place in drawn.canvas.axes for one in place.collections[::2]}) == 1
    assert "6 test examples" in drawn.caption
    assert "round 10" in drawn.caption


def test_a_class_is_named_at_one_of_its_own_points(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "features", features.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    places = [text.get_position() for text in drawn.canvas.axes[0].texts]
    assert list(places[2]) == [0.0, 10.0]  # the other 7 is nowhere


def test_features_that_are_all_equal_have_no_picture(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "features", lambda scale: features.stored(np.nan))
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [axes.texts[0].get_text() for axes in drawn.canvas.axes] == ["no data"] * 3


def test_many_classes_are_a_scale_without_repeating_colours(tmp_path: Path) -> None:
    def stored(scale: float) -> Answer:
        labels, points = np.arange(40), np.random.default_rng(0).normal(size=(40, 2))
        return features.stored(scale, labels, labels, points)

    found = two_methods(tmp_path, "features", stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    axes = drawn.canvas.axes[0]
    assert len({tuple(one.get_edgecolor()[0]) for one in axes.collections[::2]}) == 40
    assert not axes.texts  # forty numbers would hide the points
