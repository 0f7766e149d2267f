"""Over rounds: means over seeds with bands, panels for what is stored, logarithmic where decades are spanned."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from reports.figures.incompatibility import FIGURE
from tests.reports.results import incompatibility
from tests.reports.results.three import three_runs


def test_seeds_are_a_mean_with_a_band_and_panels_follow_what_is_stored(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "incompatibility", incompatibility.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    titles = [axes.get_title() for axes in drawn.canvas.axes]
    assert titles[:3] == ["flatness incompatibility", "sharpness that clients see", "data heterogeneity"]
    assert titles[3:] == ["tracking error of the server's direction"]
    first = drawn.canvas.axes[0]
    lines = {line.get_gid(): line for line in first.get_lines()}
    np.testing.assert_allclose(lines["runs:run_a run_b"].get_ydata(), 1.5 * incompatibility.DISPERSION)
    np.testing.assert_allclose(lines["runs:run_c"].get_ydata(), 3 * incompatibility.DISPERSION)
    band = first.collections[0]
    assert band.get_gid() == "runs:run_a run_b"
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(8e-3)
    assert [axes.get_yscale() for axes in drawn.canvas.axes] == ["log", "linear", "linear", "linear"]
    assert [text.get_text() for text in drawn.canvas.legends[0].get_texts()] == ["FedAvg", "FedASAM + SWA"]
    assert "ρ = 0.05;" in drawn.caption
    assert "2 clients" in drawn.caption


def test_a_gap_in_the_duals_is_a_gap_in_the_line(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "incompatibility", partial(incompatibility.stored, tracking=False, gap=True))
    (drawn,) = FIGURE.draw(found.runs[2:], found)
    (line,) = drawn.canvas.axes[3].get_lines()
    np.testing.assert_allclose(line.get_ydata(), 3 * incompatibility.GAP)
    assert drawn.canvas.axes[3].get_title() == "error of the server's perturbation"
    assert "a gap in δ_ε" in drawn.caption


def test_radii_that_differ_are_told_and_a_negative_variance_is_shown(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "incompatibility", incompatibility.stored)
    data = found.runs[2].answers["incompatibility"][0].data
    data["radius"][:] = 0.1
    data["rise_dispersion_corrected"][0] = -1e-4
    (drawn,) = FIGURE.draw(found.runs, found)
    assert "ρ = 0.05 (FedAvg), 0.1 (FedASAM + SWA)" in drawn.caption
    assert drawn.canvas.axes[0].get_yscale() == "symlog"


def test_methods_of_a_single_round_stand_side_by_side(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "incompatibility", incompatibility.stored)
    for run in found.runs:
        (answer,) = run.answers["incompatibility"]
        run.answers["incompatibility"] = (replace(answer, data=answer.data.isel(round=[-1])),)
    (drawn,) = FIGURE.draw(found.runs, found)
    first = drawn.canvas.axes[0]
    assert [box.lines[0].get_xdata().tolist() for box in first.containers] == [[0], [1]]
    low, high = first.containers[0].lines[2][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((incompatibility.DISPERSION[-1], 2 * incompatibility.DISPERSION[-1]))
    assert first.get_xlabel().startswith("methods side by side, round ")
