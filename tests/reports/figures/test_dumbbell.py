"""Dumbbells: clients of the last round, residuals, a panel for each run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.store import Answer
from reports.figures.dumbbell import FIGURE, MOST
from tests.reports.results import local_global
from tests.reports.results.three import three_runs


def test_a_panel_for_each_run_is_hidden_with_it(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "local_global", local_global.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [axes.get_gid() for axes in drawn.canvas.axes] == ["runs:run_a", "runs:run_b", "runs:run_c"]
    assert [axes.get_title() for axes in drawn.canvas.axes] == ["FedAvg, seed 0", "FedAvg, seed 1", "FedASAM + SWA"]
    own, everyone, whole = drawn.canvas.axes[2].get_lines()[:3]
    np.testing.assert_allclose(own.get_xdata(), [9.0, 6.0])
    np.testing.assert_allclose(everyone.get_xdata(), [90.0, 120.0])
    assert whole.get_xdata()[0] == 36.0
    residuals = drawn.canvas.axes[0].collections[2].get_segments()  # those on everyone's data
    np.testing.assert_allclose(residuals[1][:, 0], [39.96, 40.04])
    assert {axes.get_xlim() for axes in drawn.canvas.axes} == {(1.6, 150.0)}  # shared


def test_many_clients_get_room_and_not_all_of_them_a_name(tmp_path: Path) -> None:
    def many(scale: float) -> Answer:
        few, count = local_global.stored(scale), 100
        data = few.data.reindex(client=np.arange(count))
        data["distance"].loc[{"round": 10}] = 1.0
        for name in ("local_eigenvalue", "local_residual", "global_eigenvalue", "global_residual"):
            data[name].loc[{"round": 10}] = np.arange(1.0, count + 1)[:, None]
        return replace(few, data=data)

    found = three_runs(tmp_path, "local_global", many)
    (drawn,) = FIGURE.draw(found.runs, found)
    assert len(drawn.rows) == 300
    assert len(drawn.canvas.axes[0].get_yticks()) <= MOST
    assert 5 < drawn.canvas.get_figheight() <= 10
