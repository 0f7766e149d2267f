"""What accuracy costs: megabytes below the curve, points per target, crosses for never."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.store import Answer
from reports.figures.communication import FIGURE
from reports.inputs.runs import read_runs
from tests.reports.conftest import make_run
from tests.reports.results import training
from tests.reports.results.answers import write_answer
from tests.reports.results.seeds_and_settings import two_methods


def test_accuracy_lies_over_megabytes(tmp_path: Path) -> None:
    found = two_methods(tmp_path, "training", training.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    left = drawn.canvas.axes[0]
    lines = {line.get_label(): line for line in left.get_lines()}
    np.testing.assert_allclose(lines["FedAvg"].get_xdata(), [4.0, 8.0, 12.0])  # 2 MB down and up in each round
    np.testing.assert_allclose(lines["FedAvg"].get_ydata(), [7.5, 15.0, 22.5])
    assert left.get_xlabel() == "megabytes sent, down and up"


def test_points_are_rounds_and_megabytes_and_never_is_a_cross(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    write_answer(run, training.stored())
    found = read_runs([run])
    (drawn,) = FIGURE.draw(found.runs, found)
    _, rounds, sent = drawn.canvas.axes
    assert [tick.get_text() for tick in rounds.get_xticklabels()] == ["10", "20", "90"]
    for axes, factor in ((rounds, 1.0), (sent, 4.0)):
        points = [line for line in axes.get_lines() if line.get_marker() == "o"]
        assert [float(line.get_ydata()[0]) for line in points] == [factor, 2 * factor]
        (cross,) = [line for line in axes.get_lines() if line.get_marker() == "x"]
        assert cross.get_xdata()[0] == pytest.approx(2.0)
        assert cross.get_ydata()[0] > 2 * factor
        assert cross.get_gid() == "runs:run"
        assert "never" in [text.get_text() for text in axes.texts]
    never = [row for row in drawn.rows if row.get("target") == 0.9]
    assert [row["never"] for row in never] == [1, 1]
    assert all(np.isnan(row["mean"]) for row in never)


def test_seeds_that_never_get_there_are_counted(tmp_path: Path) -> None:
    def stored(scale: float) -> Answer:
        return training.stored(scale, swa=scale == 0.8) if scale != 0.5 else _later()

    found = two_methods(tmp_path, "training", stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    texts = [text.get_text() for text in drawn.canvas.axes[1].texts]
    assert "1 of 2" in texts
    rows = {(row["algorithm"], row["target"]): row for row in drawn.rows if row["metric"] == "rounds to target"}
    assert rows["FedAvg", 0.2]["mean"] == 2.0  # of the seed that got there
    assert rows["FedAvg", 0.1]["highest"] == 3.0
    assert rows["FedASAM + SWA", 0.2]["mean"] == 1.0  # its average is there before the server's model


def _later() -> Answer:
    later = training.stored()
    later.data["rounds_to_target"].loc["server"] = [3.0, np.nan, np.nan]
    later.data["bytes_to_target"].loc["server"] = [12e6, np.nan, np.nan]
    return later


def test_targets_that_nobody_reached_have_no_panels(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=())
    answer = training.stored()
    for name in ("rounds_to_target", "bytes_to_target"):
        answer.data[name][:] = np.nan
    write_answer(run, answer)
    found = read_runs([run])
    (drawn,) = FIGURE.draw(found.runs, found)
    assert len(drawn.canvas.axes) == 1
    assert drawn.caption.endswith("no run reached a target accuracy")
