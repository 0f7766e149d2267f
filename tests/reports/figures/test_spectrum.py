"""Eigenvalues one by one: sizes on the axis, signs by marker and colour, the ratio in the legend."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from reports.figures.spectrum import FIGURE, NEGATIVE
from tests.reports.results import curvature
from tests.reports.results.three import three_runs


def _of(axes: Any, run: str) -> list[Any]:
    return [bars for bars in axes.containers if bars.lines[0].get_gid() == f"runs:{run}"]


def test_sizes_of_the_last_round_with_signs_and_residuals(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "curvature", curvature.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    (axes,) = drawn.canvas.axes
    for run, scale in zip(("run_a", "run_b", "run_c"), (1, 2, 3), strict=True):
        by_marker: dict[str, list[float]] = {}
        for bars in _of(axes, run):
            by_marker.setdefault(bars.lines[0].get_marker(), []).extend(bars.lines[0].get_ydata())
        assert sorted(by_marker.pop(NEGATIVE)) == pytest.approx([scale * 2.0, scale * 12.0])  # smallest, and rank 4
        assert sorted(*by_marker.values()) == pytest.approx([scale * 10.0, scale * 15.0, scale * 20.0, scale * 30.0])
    first = _of(axes, "run_a")[0]
    np.testing.assert_allclose(first.lines[2][0].get_segments()[0][:, 1], [29.7, 30.3])
    faces = {to_hex(bars.lines[0].get_markerfacecolor(), keep_alpha=True) for bars in _of(axes, "run_a")}
    assert len(faces) == 3  # positive, negative, not converged
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "3", "4", "5", "smallest"]
    assert axes.get_yscale() == "log"


def test_the_legend_tells_how_much_the_first_stands_out(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "curvature", curvature.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    texts = [text.get_text() for text in drawn.canvas.legends[0].get_texts()]
    assert texts[:2] == ["FedAvg: λ₁/λ₅ = 3.00", "FedASAM + SWA: λ₁/λ₅ = 3.00"]


def test_runs_stand_side_by_side(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "curvature", partial(curvature.stored, smallest=False))
    (drawn,) = FIGURE.draw(found.runs, found)
    places = [_of(drawn.canvas.axes[0], run)[0].lines[0].get_xdata()[0] for run in ("run_a", "run_b", "run_c")]
    assert places == pytest.approx([0.8, 1.0, 1.2])
    assert len(drawn.rows) == 15  # without the smallest, which was not measured
