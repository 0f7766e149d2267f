"""The density is smoothed here: its integral is one, its ends are marked, its band is the range over probes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from reports.figures.density import FIGURE, smooth
from reports.plotting.measured import get_data
from tests.reports.results import curvature
from tests.reports.results.three import three_runs


def test_every_probe_is_a_mixture_of_gaussians_of_weight_one() -> None:
    grid = np.linspace(-10, 40, 5001)
    each = smooth(grid, curvature.NODES, curvature.WEIGHTS, 0.5)
    assert each.shape == (2, 5001)
    np.testing.assert_allclose(each.sum(axis=1) * (grid[1] - grid[0]), 1.0, rtol=1e-9)
    np.testing.assert_allclose((each * grid).sum(axis=1) * (grid[1] - grid[0]), [-0.2 + 0.5 + 1.5, -0.2 + 0.7 + 2.9])


def test_curves_bands_and_ends(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "curvature", curvature.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    (axes,) = drawn.canvas.axes
    assert axes.get_yscale() == "log"
    width = 3 * 32 / 4  # the widest span, run_c's, over its number of nodes
    assert f"standard deviation {width:.3g}" in drawn.caption
    assert "2 probes of 4 steps" in drawn.caption
    curve, ends = axes.get_lines()[:2]
    each = smooth(curve.get_xdata(), curvature.NODES, curvature.WEIGHTS, width)
    np.testing.assert_allclose(curve.get_ydata(), each.mean(axis=0))
    assert list(ends.get_xdata()) == [-2.0, 30.0]
    assert {curve.get_gid(), ends.get_gid(), axes.collections[0].get_gid()} == {"runs:run_a"}
    row = drawn.rows[200]
    assert (row["low"], row["high"]) == pytest.approx((each[:, 200].min(), each[:, 200].max()))
    low, high = axes.get_ylim()
    assert low < min(np.interp([-2.0, 30.0], curve.get_xdata(), curve.get_ydata()))
    assert high > each.max()


def test_without_the_smallest_eigenvalue_the_outermost_node_is_the_end(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "curvature", partial(curvature.stored, smallest=False))
    for run in found.runs:
        get_data(run, "curvature")["node"][-1, 0, 0] = -1.5
    (drawn,) = FIGURE.draw(found.runs[:1], found)
    assert [row["eigenvalue"] for row in drawn.rows if "end" in row] == [-1.5, 30.0]


def test_without_numbers_or_without_a_density(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "curvature", curvature.stored)
    for run in found.runs:
        get_data(run, "curvature")["node"][:] = np.nan
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [text.get_text() for text in drawn.canvas.axes[0].texts] == ["no data"]
    none = three_runs(tmp_path / "none", "curvature", partial(curvature.stored, density=False))
    assert FIGURE.draw(none.runs, none) == []
