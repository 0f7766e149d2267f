"""Feature norms: one scale over all runs, from the smallest norm to the largest."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analysis.store import Answer
from reports.figures.feature_norms import FIGURE
from tests.reports.results import forgetting
from tests.reports.results.seeds_and_settings import two_methods


def test_cells_are_norms_on_a_shared_scale(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "forgetting", forgetting.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    *panels, bar = drawn.canvas.axes
    image = panels[2].get_images()[0]
    np.testing.assert_allclose(image.get_array().filled(-1), [[0.8, 2.4, 4.0], [1.6, -1, 4.8]])
    assert {axes.get_images()[0].get_clim() for axes in panels} == {(0.5, 6.0)}
    assert bar.get_ylabel().replace("\n", " ") == "mean L2 norm of the penultimate features"
    assert panels[2].get_gid() == "runs:run_c"


def test_no_norm_at_all_is_no_picture(tmp_path: Path) -> None:
    def stored(scale: float) -> Answer:
        found = forgetting.stored(scale)
        found.data["feature_norm"][:] = np.nan
        return found

    found = two_methods(tmp_path, "forgetting", stored)
    assert FIGURE.draw(found.runs, found) == []
