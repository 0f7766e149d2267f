"""Classes over rounds: cells hold the stored accuracies in per cent, missing ones are empty."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reports.figures.classes import FIGURE
from tests.reports.results import forgetting
from tests.reports.results.seeds_and_settings import two_methods


def test_cells_are_classes_by_rounds(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "forgetting", forgetting.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    *panels, bar = drawn.canvas.axes
    assert [axes.get_title() for axes in panels] == ["FedAvg, seed 0", "FedAvg, seed 1", "FedASAM + SWA"]
    assert [axes.get_gid() for axes in panels] == ["runs:run_a", "runs:run_b", "runs:run_c"]
    cells = panels[0].get_images()[0].get_array()
    np.testing.assert_allclose(cells.filled(-1), [[0.0, 25.0, 100.0], [50.0, -1, 12.5]])
    assert [tick.get_text() for tick in panels[0].get_xticklabels()] == ["0", "5", "10"]
    assert [tick.get_text() for tick in panels[0].get_yticklabels()] == ["0", "1"]
    assert {axes.get_images()[0].get_clim() for axes in panels} == {(0, 100)}  # one scale for all
    assert panels[0].patch.get_hatch()  # behind the missing cell
    assert bar.get_ylabel() == "accuracy on the class (%)"
    assert "20 examples" in drawn.caption
    assert "BatchNorm frozen" in drawn.caption
    assert drawn.rows[1]["accuracy"] == 0.5
    assert drawn.rows[1]["examples"] == 12
