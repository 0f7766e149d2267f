"""Drift: bars are standard errors of a single run, and what is not on record is named instead of drawn."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from reports.figures.drift import FIGURE, PANELS
from tests.reports.results import drift
from tests.reports.results.three import three_runs


def test_a_single_run_has_its_standard_error_as_bars(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "drift", drift.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    first = drawn.canvas.axes[0]
    several, single = first.containers
    np.testing.assert_allclose(several.lines[0].get_ydata(), 1.5 * drift.DISTANCE)
    np.testing.assert_allclose(single.lines[0].get_ydata(), 3 * drift.DISTANCE)
    np.testing.assert_allclose(single.lines[2][0].get_segments()[1][:, 1], [1.95, 2.25])  # 3 (0.7 -+ 0.05)
    (row,) = (row for row in drawn.rows if (row["runs"], row["measure"], row["round"]) == ("run_c", "distance", 5))
    np.testing.assert_allclose([row["low"], row["mean"], row["high"]], [1.95, 2.1, 2.25])
    assert several.lines[2] == ()
    assert single.lines[2][0].get_gid() == "runs:run_c"
    assert "standard error over participants" in drawn.caption
    assert "temperature 3" in drawn.caption


def test_unknown_cosines_are_named_and_not_drawn(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "drift", drift.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    shown = [axes.get_title() for axes in drawn.canvas.axes]
    missing = ["update and mean update", "updates of two clients"]
    assert shown == [title for title, _ in PANELS.values() if title not in missing]
    assert f"not on record: {', '.join(missing)}" in drawn.caption


def test_all_that_is_stored_is_drawn(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "drift", partial(drift.stored, cosines=True))
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [axes.get_title() for axes in drawn.canvas.axes] == [title for title, _ in PANELS.values()]
    bare = three_runs(tmp_path / "bare", "drift", partial(drift.stored, proximal=False))
    (drawn,) = FIGURE.draw(bare.runs, bare)
    assert len(drawn.canvas.axes) == 3
    assert "temperature" not in drawn.caption


def test_the_caption_says_what_was_compared_with(tmp_path: Path) -> None:
    for name, words in (
        ("sent", "reference of the proximal loss: the point that was sent;"),
        ("global", "reference of the proximal loss: the global model after the round, not the point that was sent;"),
    ):
        found = three_runs(tmp_path / name, "drift", partial(drift.stored, cosines=True, reference=name))
        (drawn,) = FIGURE.draw(found.runs, found)
        assert words in drawn.caption
        assert "FedSoL's figure 9b, along the local steps, is in what was recorded" in drawn.caption
