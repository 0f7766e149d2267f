"""Corruptions: sorted, a dot per method with its doubt, the clean accuracy as a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reports.figures.robustness import FIGURE
from reports.inputs.runs import read_runs
from tests.reports.conftest import make_run
from tests.reports.results import robustness
from tests.reports.results.answers import write_answer
from tests.reports.results.seeds_and_settings import two_methods


def test_a_single_run_has_standard_errors(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    write_answer(run, robustness.stored())
    found = read_runs([run])
    (drawn,) = FIGURE.draw(found.runs, found)
    (axes,) = drawn.canvas.axes
    points, _, (bars,) = axes.containers[0].lines
    np.testing.assert_allclose(points.get_xdata(), [20.0, 70.0, np.nan])  # the worst first, the unknown last
    np.testing.assert_allclose(bars.get_segments()[0][:, 0], [18.0, 22.0])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["glass blur", "gaussian noise", "fog"]
    clean = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert clean[0].get_xdata()[0] == pytest.approx(90.0)
    assert {artist.get_gid() for artist in (points, bars, clean[0])} == {"runs:run"}
    for words in ("360 test images", "saturate", "severities 1, 5", "standard errors"):
        assert words in drawn.caption


def test_seeds_are_a_mean_with_their_range(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "robustness", robustness.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    row = next(row for row in drawn.rows if row["algorithm"] == "fedavg" and row["corruption"] == "gaussian_noise")
    assert (row["accuracy"], row["low"], row["high"]) == pytest.approx((52.5, 35.0, 70.0))
    assert row["clean_accuracy"] == pytest.approx(67.5)
    assert "range over seeds" in drawn.caption
    names = [text.get_text() for text in drawn.canvas.legends[0].get_texts()]
    assert names == ["FedAvg", "FedASAM + SWA"]


def test_dots_of_two_methods_lie_beside_each_other(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "robustness", robustness.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    first, second = (box.lines[0].get_ydata() for box in drawn.canvas.axes[0].containers)
    assert (np.asarray(first) > np.asarray(second)).all()  # top to bottom as in the legend
    assert np.abs(np.asarray(first) - np.round(first)).max() < 0.5
