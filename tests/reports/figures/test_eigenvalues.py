"""The largest eigenvalue over rounds: every run's own line, hidden with its run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reports.figures.eigenvalues import FIGURE
from reports.plotting.measured import get_data
from tests.reports.results import curvature
from tests.reports.results.three import three_runs


def test_every_run_is_a_line_of_its_own_with_residuals(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "curvature", curvature.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    (axes,) = drawn.canvas.axes
    assert [bars.lines[0].get_gid() for bars in axes.containers] == ["runs:run_a", "runs:run_b", "runs:run_c"]
    for bars, scale in zip(axes.containers, (1, 2, 3), strict=True):
        np.testing.assert_allclose(bars.lines[0].get_xdata(), [0, 5, 10])
        np.testing.assert_allclose(bars.lines[0].get_ydata(), scale * curvature.VALUES[:, 0])
        np.testing.assert_allclose(bars.lines[2][0].get_segments()[2][:, 1], scale * np.array([29.7, 30.3]))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["FedAvg", "FedASAM + SWA"]
    assert "training loss of the global model (server)" in drawn.caption
    assert "all examples" in drawn.caption
    assert "seeds 0, 1" in drawn.caption
    assert [row["lambda_1"] for row in drawn.rows[:3]] == [1.0, 40.0, 30.0]


def test_an_unknown_value_does_not_spoil_the_scale_of_the_others(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "curvature", curvature.stored)
    get_data(found.runs[0], "curvature")["eigenvalue"][0, 0] = np.nan
    (drawn,) = FIGURE.draw(found.runs, found)
    assert drawn.canvas.axes[0].get_yscale() == "log"
    for run in found.runs:
        get_data(run, "curvature")["eigenvalue"][:] = np.nan
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [text.get_text() for text in drawn.canvas.axes[0].texts] == ["no data"]
