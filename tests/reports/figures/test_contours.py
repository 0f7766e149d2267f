"""Maps: contour lines lie where the stored losses put them, levels are shared, holes and clipping are visible."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reports.figures.contours import FIGURE
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results import surface
from tests.reports.results.answers import write_answer


@pytest.fixture
def two(tmp_path: Path) -> Collection:
    paths = [make_run(tmp_path / "run_a", "fedavg"), make_run(tmp_path / "run_c", "fedsam")]
    write_answer(tmp_path, surface.stored(["run_a", "run_c"]))
    return read_runs(paths)


def test_lines_lie_where_the_loss_has_their_value(two: Collection) -> None:
    loss, _ = FIGURE.draw(two.runs, two)
    for axes, (factor, slope), name in zip(
        loss.canvas.axes[:2], (surface.SHAPES["run_a"], surface.SHAPES["run_c"]), ("run_a", "run_c"), strict=True
    ):
        bands, lines = (one for one in axes.collections if hasattr(one, "levels"))
        assert axes.get_gid() == f"runs:{name}"
        assert axes.get_aspect() == 1
        assert len(lines.levels) > 1
        inside = 0
        for level, path in zip(lines.levels, lines.get_paths(), strict=True):
            x, y = path.vertices[(path.vertices[:, 0] > -0.5) & (path.vertices[:, 0] < 0.5)].T  # away from inf and NaN
            np.testing.assert_allclose(factor * (4 + slope * x + 3 * y), level, rtol=1e-6)
            inside += len(x)
        assert inside > 4
        assert {text.get_text() for text in axes.texts} <= {f"{level:g}" for level in bands.levels}
        assert axes.texts


def test_levels_are_shared_and_logarithmic_where_the_range_is_wide(two: Collection) -> None:
    loss, error = FIGURE.draw(two.runs, two)
    for drawn in (loss, error):
        first, second, _ = drawn.canvas.axes
        np.testing.assert_array_equal(first.collections[0].levels, second.collections[0].levels)
    levels = loss.canvas.axes[0].collections[0].levels
    assert (levels[0], levels[-1]) == (0.15, 7.0)
    assert np.ptp(np.log(levels[1:] / levels[:-1])) < 0.25  # even steps of the logarithm
    assert np.ptp(np.diff(error.canvas.axes[0].collections[0].levels)) < 1e-9


def test_missing_cells_are_hatched_and_clipped_ones_are_beyond_the_bar(two: Collection) -> None:
    loss, _ = FIGURE.draw(two.runs, two)
    holed, bar = loss.canvas.axes[1], loss.canvas.axes[2]
    assert holed.patch.get_hatch()
    assert not any(path.contains_point((-0.95, -0.45)) for path in holed.collections[0].get_paths())
    assert any(path.contains_point((0.45, 0.1)) for path in holed.collections[0].get_paths())
    assert holed.collections[0].extend == "max"
    assert bar.get_yticklabels()[-1].get_text() == "> 7"
    assert "cross: the model itself" in loss.caption
    cross = holed.get_lines()[-1]
    assert (list(cross.get_xdata()), list(cross.get_ydata())) == ([0], [0])


def test_the_second_drawing_is_the_test_error_in_percent(two: Collection) -> None:
    _, error = FIGURE.draw(two.runs, two)
    assert error.suffix == "_test_error"
    assert error.canvas.axes[2].get_ylabel() == "test error (%)"
    assert "n = 40" in error.caption
    row = next(row for row in error.rows if (row["run"], row["x"], row["y"]) == ("run_a", 0.5, 0.25))
    assert row["error"] == pytest.approx((4 + 0.5 + 0.75 + 0.5) / 100)
    assert row["drawn"] == pytest.approx(100 * row["error"])


def test_data_that_were_not_measured_are_left_out(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run_a", "fedavg")
    stored = surface.stored(["run_a"])
    stored.data["error"][:] = np.nan  # not a classifier
    write_answer(path, stored)
    found = read_runs([path])
    assert [one.suffix for one in FIGURE.draw(found.runs, found)] == [""]
