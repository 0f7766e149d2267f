"""Rates are shares in per cent from zero on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reports.figures.friendly import FIGURE
from tests.reports.results import incompatibility
from tests.reports.results.three import three_runs


def test_rates_of_clients_and_batches_in_per_cent(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "incompatibility", incompatibility.stored)
    (drawn,) = FIGURE.draw(found.runs[2:], found)
    clients, batches = drawn.canvas.axes
    np.testing.assert_allclose(clients.get_lines()[0].get_ydata(), [90.0, 50.0, 0.0])
    np.testing.assert_allclose(batches.get_lines()[0].get_ydata(), [np.nan, 10.0, 20.0])
    assert clients.get_lines()[0].get_gid() == "runs:run_c"
    assert clients.get_yscale() == "linear"
    assert clients.get_ylim()[0] < 0 < 90 < clients.get_ylim()[1]
    assert "%" in clients.get_ylabel()


def test_a_panel_without_numbers_is_left_out(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "incompatibility", incompatibility.stored)
    for run in found.runs:
        run.answers["incompatibility"][0].data["friendly_batches"][:] = np.nan
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [axes.get_title() for axes in drawn.canvas.axes] == ["of one client to another"]
