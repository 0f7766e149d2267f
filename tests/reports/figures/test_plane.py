"""The plane through three models: where they are, what they are called, and levels above the minimum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reports.figures.plane import FIGURE
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results import plane
from tests.reports.results.answers import write_answer
from tests.reports.results.seeds_and_settings import varied


def read(tmp_path: Path, **how: object) -> Collection:
    methods = {"run_a": "fedavg", "run_b": "fedsam", "run_c": "fedgloss"}
    paths = [make_run(tmp_path / name, method) for name, method in methods.items()]
    for path in paths:
        (path / "analysis" / "plane" / "default.h5").unlink()  # measured together instead
    write_answer(tmp_path, plane.stored(list(methods), **how))  # type: ignore[arg-type]
    return read_runs(paths)


def test_models_are_marked_named_and_joined(tmp_path: Path) -> None:
    found = read(tmp_path)
    drawn = FIGURE.draw(found.runs, found)
    assert [one.suffix for one in drawn] == ["_run_a", "_run_b", "_run_c"]
    for axes in drawn[0].canvas.axes:
        ring, *models = axes.get_lines()
        np.testing.assert_allclose(ring.get_xydata(), plane.PLACES[[0, 1, 2, 0]])
        assert ring.get_linestyle() == "--"
        np.testing.assert_allclose([one.get_xydata()[0] for one in models], plane.PLACES)
        assert len({one.get_marker() for one in models}) == 4
        assert [text.get_text() for text in axes.texts] == ["client 0", "client 2", "client 5", "global model"]
        assert [text.xy for text in axes.texts] == [tuple(place) for place in plane.PLACES]
        assert axes.get_aspect() == 1
        assert "weight distance" in axes.get_xlabel()
        assert axes.get_gid() == "runs:run_a"
    assert "0.25 away from the plane" in drawn[0].caption
    assert "n = 100 training, 40 test" in drawn[0].caption


def test_training_loss_and_test_error_stand_side_by_side(tmp_path: Path) -> None:
    found = read(tmp_path)
    left, right = FIGURE.draw(found.runs, found)[0].canvas.axes
    assert [axes.get_title() for axes in (left, right)] == ["FedAvg: training loss", "FedAvg: test error (%)"]
    for axes, above in ((left, 1.0), (right, 2.0)):  # the loss, and percent of the error: 1 or 2, + 10 (x + 0.2)
        lines = axes.collections[1]
        for level, path in zip(lines.levels, lines.get_paths(), strict=True):
            x = path.vertices[path.vertices[:, 0] < 0.9, 0]
            np.testing.assert_allclose(above + 10 * (x + 0.2), level, rtol=1e-6)
    assert left.get_position().y0 == pytest.approx(right.get_position().y0)


def test_levels_rise_evenly_above_the_minimum_and_the_last_is_open(tmp_path: Path) -> None:
    found = read(tmp_path)
    axes = FIGURE.draw(found.runs, found)[0].canvas.axes[0]
    bands = axes.collections[0]
    assert bands.levels[0] == 1.0
    steps = np.diff(np.log(bands.levels[1:] - bands.levels[0]))
    np.testing.assert_allclose(steps, steps[0])
    assert bands.levels[-1] >= 13.0  # all three models lie within
    (bar,) = axes.child_axes
    assert bar.get_yticklabels()[-1].get_text() == f"> {bands.levels[-1]:.2g}"
    assert axes.patch.get_hatch()
    assert not any(path.contains_point((-0.19, -0.19)) for path in bands.get_paths())


def test_numbers_of_models_come_with_the_grid(tmp_path: Path) -> None:
    found = read(tmp_path)
    rows = FIGURE.draw(found.runs, found)[0].rows
    models = [row for row in rows if row["model"]]
    assert [row["value"] for row in models] == [3.0, 13.0, 7.0, 5.5, *(pytest.approx(v) for v in (4, 14, 8, 6.5))]
    assert len(rows) == 2 * (4 + 8 * 5)


def test_low_planes_lie_one_below_the_other(tmp_path: Path) -> None:
    found = read(tmp_path, height=0.3)
    top, bottom = FIGURE.draw(found.runs, found)[0].canvas.axes
    assert top.get_position().y0 > bottom.get_position().y0


def test_a_plane_through_three_runs_is_named_by_methods_and_belongs_to_all(tmp_path: Path) -> None:
    found = read(tmp_path, models="runs")
    (drawn,) = FIGURE.draw(found.runs, found)
    axes = drawn.canvas.axes[0]
    assert [text.get_text() for text in axes.texts] == ["FedAvg", "FedSAM", "FedGloSS"]
    assert axes.get_gid() == "runs:run_a run_b run_c"
    assert "star" not in drawn.caption


def test_an_error_that_is_the_same_everywhere_is_drawn_without_ado(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run_a", "fedavg")
    stored = plane.stored(["run_a"])
    stored.data["error"][:] = 0.25
    stored.data["model_error"][:] = 0.25
    stored.data["loss"][:] = np.nan
    write_answer(path, stored)
    found = read_runs([path])
    (drawn,) = FIGURE.draw(found.runs, found)
    loss, error = drawn.canvas.axes
    assert "no data" in [text.get_text() for text in loss.texts]
    assert error.collections[0].levels[0] == 25.0


def test_runs_that_differ_in_a_setting_are_named_by_it(tmp_path: Path) -> None:
    """FedSAM, F2a-b: three partitions of one method."""
    names = ["run_a", "run_b", "run_c"]
    paths = [
        varied(make_run(tmp_path / name, "fedavg", studies=()), partition_alpha=alpha)
        for name, alpha in zip(names, (0.0, 0.5, 1000.0), strict=True)
    ]
    write_answer(tmp_path, plane.stored(names, models="runs"))
    found = read_runs(paths)
    (drawn,) = FIGURE.draw(found.runs[:1], found)
    for axes in drawn.canvas.axes[:2]:
        assert [text.get_text() for text in axes.texts] == [
            "FedAvg, Dirichlet α = 0",
            "FedAvg, Dirichlet α = 0.5",
            "FedAvg, Dirichlet α = 1000",
        ]
        assert axes.get_title().startswith("FedAvg: ")
