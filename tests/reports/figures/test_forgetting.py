"""Forgetting over rounds, and local models on own and on everyone's data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analysis.store import Answer
from reports.figures.forgetting import FIGURE
from tests.reports.results import forgetting
from tests.reports.results.seeds_and_settings import two_methods


def test_lines_are_percentage_points_over_rounds(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "forgetting", forgetting.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    classes, clients, local = drawn.canvas.axes
    lines = {line.get_label(): line for line in classes.get_lines()}
    np.testing.assert_allclose(lines["FedAvg"].get_xdata(), [10])  # nothing to forget before
    np.testing.assert_allclose(lines["FedAvg"].get_ydata(), [-22.5])
    lines = {line.get_label(): line for line in clients.get_lines()}
    np.testing.assert_allclose(lines["FedASAM + SWA"].get_ydata(), [8.0, 16.0])
    own, wide = [line for line in local.get_lines() if line.get_gid() == "runs:run_c"]
    np.testing.assert_allclose(own.get_ydata(), [72.0, 56.0])  # mean over the round's participants
    np.testing.assert_allclose(wide.get_ydata(), [24.0, np.nan])
    assert (own.get_linestyle(), wide.get_linestyle()) == ("-", "--")
    names = [text.get_text() for text in drawn.canvas.legends[0].get_texts()]
    assert names == ["FedAvg", "FedASAM + SWA", "on own training data", "on everyone's data"]


def test_without_local_models_there_are_two_panels(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "forgetting", lambda scale: forgetting.stored(scale, local=False))
    (drawn,) = FIGURE.draw(found.runs, found)
    assert len(drawn.canvas.axes) == 2


def test_a_single_round_has_nothing_forgotten_and_says_so(tmp_path: Path) -> None:
    def stored(scale: float) -> Answer:
        found = forgetting.stored(scale, local=False)
        for name in ("forgetting", "client_forgetting"):
            found.data[name][:] = np.nan
        return found

    found = two_methods(tmp_path, "forgetting", stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [axes.texts[0].get_text() for axes in drawn.canvas.axes] == ["no data", "no data"]
