"""Personalised accuracy: clients as dots, their mean and spread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.store import Answer
from reports.figures.personal import FIGURE
from reports.inputs.runs import read_runs
from tests.reports.conftest import make_run
from tests.reports.results import personal
from tests.reports.results.answers import write_answer
from tests.reports.results.seeds_and_settings import two_methods


def test_dots_are_clients_and_the_line_is_their_mean(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    write_answer(run, personal.stored())
    found = read_runs([run])
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [axes.get_title() for axes in drawn.canvas.axes] == ["global model", "fine-tuned", "kNN"]
    for axes, values in zip(drawn.canvas.axes, ([40, 60], [80, 100], [50, 90]), strict=True):
        dots, mean = [line for line in axes.get_lines() if line.get_gid() and len(line.get_xdata()) == 2]
        np.testing.assert_allclose(dots.get_ydata(), values)  # the client without test examples is left out
        np.testing.assert_allclose(mean.get_ydata(), [np.mean(values)] * 2)
        (bar,) = axes.containers[0].lines[2]
        np.testing.assert_allclose(bar.get_segments()[0][:, 1], [values[0], values[1]])  # two clients: mean ± spread
        assert {dots.get_gid(), mean.get_gid(), bar.get_gid()} == {"runs:run"}
    row = drawn.rows[0]
    assert (row["strategy"], row["client"], row["accuracy"]) == ("global model", 0, 0.4)
    assert row["mean_over_clients"] == pytest.approx(0.5)


def test_runs_stand_side_by_side_under_their_names(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "personal", personal.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    names = [tick.get_text() for tick in drawn.canvas.axes[0].get_xticklabels()]
    assert names == ["FedAvg, seed 0", "FedAvg, seed 1", "FedASAM + SWA"]
    assert len({axes.get_ylim() for axes in drawn.canvas.axes}) == 1


def test_a_strategy_without_any_model_says_so(tmp_path: Path) -> None:
    def stored(scale: float) -> Answer:
        found = personal.stored(scale)
        found.data["after"].loc["knn"] = np.nan
        return found

    found = two_methods(tmp_path, "personal", stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    assert drawn.canvas.axes[2].texts[0].get_text() == "no data"
