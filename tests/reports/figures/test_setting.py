"""A setting against a measure: means over seeds, all else equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reports.figures.setting import FIGURE
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results.seeds_and_settings import varied

USED = ("curvature", "training")  # what this figure shows


def sweep(folder: Path) -> Collection:
    """rho 0.1 and 0.5 of fedsam at alpha 0.5 with two seeds, and at alpha 9 with one; fedavg has no rho."""
    runs = [make_run(folder / "fedavg", "fedavg", studies=USED)]
    for alpha, rho, seed in ((0.5, 0.5, 0), (0.5, 0.1, 0), (0.5, 0.1, 1), (9.0, 0.1, 0), (9.0, 0.5, 0)):
        path = make_run(
            folder / f"{alpha}_{rho}_{seed}", "fedsam", seed=seed, scale=rho * alpha * (1 + seed), studies=USED
        )
        runs.append(varied(path, algorithm_rho=rho, partition_alpha=alpha))
    return read_runs(runs)


def test_one_picture_per_setting_that_a_method_varies_in(tmp_path: Path) -> None:
    found = sweep(tmp_path)
    drawn = FIGURE.draw(found.runs, found)
    assert [one.suffix for one in drawn] == ["_algorithm_rho", "_partition_alpha"]
    assert {axes.get_xlabel() for axes in drawn[0].canvas.axes} == {"ρ"}


def test_lines_hold_all_else_equal(tmp_path: Path) -> None:
    found = sweep(tmp_path)
    drawn = FIGURE.draw(found.runs, found)[0]
    axes = drawn.canvas.axes[0]
    assert [box.get_label() for box in axes.containers] == ["FedSAM, Dirichlet α = 0.5", "FedSAM, Dirichlet α = 9"]
    points, _, (bars,) = axes.containers[0].lines
    np.testing.assert_allclose(points.get_ydata(), [1.5, 5.0])  # at 0.1 the mean of two seeds: 1 and 2 %
    low, high = bars.get_segments()[0][:, 1]
    assert (high - low) / 2 == pytest.approx(np.std([1.0, 2.0], ddof=1))
    assert np.ptp(bars.get_segments()[1][:, 1]) == 0  # one seed, no bar
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.5"]
    assert points.get_gid() == "runs:0.5_0.5_0 0.5_0.1_0 0.5_0.1_1"
    row = next(row for row in drawn.rows if row["measure"] == "lambda_1")
    assert (row["value"], row["mean"]) == (0.1, pytest.approx(30 * 0.075))


def test_seeds_and_methods_alone_are_no_setting(collection: Collection) -> None:
    assert FIGURE.draw(collection.runs, collection) == []
