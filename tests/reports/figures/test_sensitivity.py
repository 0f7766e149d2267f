"""Layers: means over the participants of the last round, rings around what most of them would choose."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from reports.figures.sensitivity import FIGURE
from tests.reports.results import sensitivity
from tests.reports.results.three import three_runs


def test_means_errors_and_rings(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "sensitivity", sensitivity.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    removal, moved, adaptive = drawn.canvas.axes
    for axes, values, scale in (
        (removal, sensitivity.REMOVAL, 2),
        (moved, sensitivity.MOVED, 2),
        (adaptive, sensitivity.ADAPTIVE, 1),
    ):
        second = axes.containers[1]
        mean = scale * values[1:].mean(axis=0)
        np.testing.assert_allclose(second.lines[0].get_ydata(), mean)
        np.testing.assert_allclose(second.lines[0].get_xdata(), [0.0, 1.0, 2.0], atol=1e-12)  # in the middle of three
        rings = [line for line in axes.get_lines() if line.get_gid() == "runs:run_b" and line.get_markersize() == 9]
        np.testing.assert_allclose(rings[0].get_ydata(), mean[2:])  # half of them is not most of them
    bar = moved.containers[0].lines[2][0].get_segments()[0]
    np.testing.assert_allclose(bar[:, 1], [1.0, 3.0])  # 2 and its standard error over two participants, 1
    assert removal.get_yscale() == "log"
    assert [tick.get_text() for tick in adaptive.get_xticklabels()] == list(sensitivity.LAYERS)
    assert {row["share_choosing"] for row in drawn.rows} == {0.0, 0.5, 1.0}
    assert "among the 2 layers" in drawn.caption
    assert "radius 0.05" in drawn.caption


def test_movement_bears_the_papers_name_only_from_the_point_that_was_sent(tmp_path: Path) -> None:
    for name, title in (
        ("sent", "movement in local training (FedFSA eq. 11)"),
        ("global", "distance to the global model after the round"),
    ):
        found = three_runs(tmp_path / name, "sensitivity", partial(sensitivity.stored, reference=name))
        (drawn,) = FIGURE.draw(found.runs, found)
        assert drawn.canvas.axes[1].get_title() == title
        assert ("not the point that was sent" in drawn.caption) == (name == "global")
