"""Bars: the last round's sharpness of global and local models, and gradient norms beside them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from reports.figures.sharpness import FIGURE
from tests.reports.results import sharpness
from tests.reports.results.three import three_runs


def test_points_are_stored_values_and_means_over_participants(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "sharpness", sharpness.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    whole, own, everyone, gradients = drawn.canvas.axes

    def heights(axes: object, run: str) -> list[float]:
        drawn = [one.lines[0] for one in axes.containers]  # type: ignore[attr-defined]
        return [height for line in drawn if line.get_gid() == f"runs:{run}" for height in line.get_ydata()]

    for run, scale in (("run_a", 1), ("run_b", 2), ("run_c", 3)):
        np.testing.assert_allclose(heights(whole, run), scale * sharpness.GLOBAL[-1])
        np.testing.assert_allclose(heights(own, run), scale * np.array([0.02, 0.0002]))
        np.testing.assert_allclose(heights(everyone, run), scale * np.array([0.2, 0.002]))
        np.testing.assert_allclose(heights(gradients, run), [1.0, 0.1, 1.0])
    first = whole.collections[0].get_segments()
    np.testing.assert_allclose(first[-1][:, 1], [0.0025, 0.0035])
    doubt = own.collections[0].get_segments()
    np.testing.assert_allclose(doubt[0][:, 1], [0.01, 0.03])  # standard error of 0.01 and 0.03
    assert [tick.get_text() for tick in whole.get_xticklabels()] == ["SAM", "average"]
    assert "0.05 (SAM), 0.005 (average)" in drawn.caption
    assert "at most 100 examples" in drawn.caption


def test_panels_follow_what_was_measured(tmp_path: Path) -> None:
    alone = three_runs(tmp_path / "alone", "sharpness", partial(sharpness.stored, local=False))
    (drawn,) = FIGURE.draw(alone.runs, alone)
    titles = [axes.get_title() for axes in drawn.canvas.axes]
    assert titles == ["global model, everyone's data", "gradient there"]
    own = three_runs(tmp_path / "own", "sharpness", partial(sharpness.stored, everyone=False))
    (drawn,) = FIGURE.draw(own.runs, own)
    assert len(drawn.canvas.axes) == 3
