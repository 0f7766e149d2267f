"""What was recorded along local steps: means over rounds, and the steps of the last round."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reports.figures.recorded import FIGURE
from reports.inputs.runs import read_runs
from tests.reports.conftest import make_run
from training.storage import metrics


def recorded(path: Path, scale: float = 1.0) -> Path:
    run = make_run(path, "fedsol", studies=())
    (run / "metrics.jsonl").unlink()
    for t in (1, 2, 3):
        steps = [None, -0.2 * scale * t, -0.4 * scale * t]
        some = {"proximal_cosine": {"mean": -0.3 * scale * t, "by_step": steps}, "delta_epsilon": 0.5 * t}
        metrics.append(run, {"round": t, "accuracy": 0.5, "recorded": some})
    return run


def test_cosines_over_rounds_and_along_the_steps(tmp_path: Path) -> None:
    found = read_runs([recorded(tmp_path / "run")])
    (drawn,) = FIGURE.draw(found.runs, found)
    rounds, steps, once, _ = drawn.canvas.axes
    np.testing.assert_allclose(rounds.get_lines()[0].get_xydata(), [[1, -0.3], [2, -0.6], [3, -0.9]])
    np.testing.assert_allclose(steps.get_lines()[0].get_xydata(), [[2, -0.6], [3, -1.2]])  # undefined in the first
    np.testing.assert_allclose(once.get_lines()[0].get_ydata(), [0.5, 1.0, 1.5])
    assert "recorded in training" in drawn.caption
    assert "last round: 3" in drawn.caption


def test_without_a_record_there_is_no_picture(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=())
    odd = [{"recorded": 3}, {"recorded": {"x": "y"}}, {"recorded": {"x": {"mean": None, "by_step": 7}}}]
    for number, record in enumerate(odd, start=1):
        (run / "metrics.jsonl").unlink()
        metrics.append(run, {"round": 1, **record})
        found = read_runs([run])
        assert len(found.runs[0].metrics) == 1
        assert FIGURE.draw(found.runs, found) == [], number
