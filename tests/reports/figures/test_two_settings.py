"""Two settings as a heat map, where both were crossed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reports.figures.two_settings import FIGURE
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results.seeds_and_settings import varied


def crossed(folder: Path, pairs: list[tuple[float, float]]) -> Collection:
    runs = []
    for rho, alpha in pairs:
        path = make_run(folder / f"{rho}_{alpha}", "fedsam", scale=rho * alpha, studies=())
        runs.append(varied(path, algorithm_rho=rho, partition_alpha=alpha))
    return read_runs(runs)


def test_cells_are_accuracies_and_what_was_not_run_is_empty(tmp_path: Path) -> None:
    found = crossed(tmp_path, [(0.1, 1.0), (0.2, 1.0), (0.1, 2.0), (0.2, 2.0), (0.4, 2.0)])
    (drawn,) = FIGURE.draw(found.runs, found)
    axes, bar = drawn.canvas.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ρ", "Dirichlet α")
    cells = axes.get_images()[0].get_array().filled(-1)
    np.testing.assert_allclose(cells, [[2.0, 4.0, -1], [4.0, 8.0, 16.0]])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.2", "0.4"]
    assert [text.get_text() for text in axes.texts] == ["2.0", "4.0", "4.0", "8.0", "16.0"]
    assert bar.get_ylabel() == "test accuracy (%)"
    assert sum(np.isnan(row["accuracy"]) for row in drawn.rows) == 1
    assert axes.get_gid().startswith("runs:")
    assert len(axes.get_gid().split()) == 5


@pytest.mark.parametrize(
    "pairs", [[(0.1, 1.0), (0.2, 2.0), (0.4, 4.0)], [(0.1, 1.0), (0.2, 1.0), (0.1, 2.0)], [(0.1, 1.0), (0.2, 1.0)]]
)
def test_settings_that_were_not_crossed_are_no_picture(tmp_path: Path, pairs: list[tuple[float, float]]) -> None:
    found = crossed(tmp_path, pairs)
    assert FIGURE.draw(found.runs, found) == []
