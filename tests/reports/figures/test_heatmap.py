"""Clients x rounds: cells hold the stored eigenvalues, who took no part is hatched, one colour scale for all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.colors import LogNorm

from analysis.store import Answer
from reports.figures.heatmap import FIGURE
from reports.plotting.measured import get_data
from tests.reports.results import local_global
from tests.reports.results.three import three_runs


def test_cells_hold_both_sides_of_every_client_and_round(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "local_global", local_global.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    panels = drawn.canvas.axes[:6]
    nan = np.nan  # clients 0 to 3 from below, of whom 2 is absent; rounds 5 and 10; what client 0 sees is unknown
    own, everyone = [[nan, nan], [nan, 3.0], [nan] * 2, [nan, 2.0]], [[9.0, nan], [nan, 30.0], [nan] * 2, [nan, 40.0]]
    for place, axes in enumerate(panels):
        image = axes.images[0]
        expected = (place // 2 + 1) * np.array(everyone if place % 2 else own)
        np.testing.assert_allclose(np.ma.filled(image.get_array(), nan), expected)
        assert isinstance(image.norm, LogNorm)
        assert (image.norm.vmin, image.norm.vmax) == (2.0, 120.0)
        assert axes.patch.get_hatch()
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["5", "10"]
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0", "1", "2", "3"]
        assert axes.get_gid() == f"runs:run_{'abc'[place // 2]}"
    assert panels[1].get_title() == "FedAvg, seed 0: everyone's data"
    assert drawn.canvas.axes[6].get_ylabel() == "largest eigenvalue"


def test_what_is_not_positive_is_drawn_at_the_end_of_the_scale_and_said(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "local_global", local_global.stored)
    get_data(found.runs[0], "local_global")["local_eigenvalue"].loc[{"round": 10, "client": 3}] = -5.0
    (drawn,) = FIGURE.draw(found.runs, found)
    cells = drawn.canvas.axes[0].images[0].get_array()
    assert cells[3, 1] == 3.0  # the smallest positive one
    assert "not positive ones as 3" in drawn.caption
    assert -5.0 in [row["lambda_1"] for row in drawn.rows]


def test_a_single_round_is_left_to_the_dumbbells(tmp_path: Path) -> None:
    def last_round(scale: float) -> Answer:
        whole = local_global.stored(scale)
        return replace(whole, data=whole.data.isel(round=[-1]))

    found = three_runs(tmp_path, "local_global", last_round)
    assert FIGURE.draw(found.runs, found) == []
