"""Surfaces in three dimensions hold the stored losses, on one scale for all runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpl_toolkits.mplot3d import Axes3D

from reports.figures.surface import FIGURE
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results import surface
from tests.reports.results.answers import write_answer


@pytest.fixture
def compared(tmp_path: Path) -> Collection:
    paths = [make_run(tmp_path / name, "fedavg" if name != "run_c" else "fedsam") for name in ("run_c", "run_a")]
    write_answer(tmp_path, surface.stored(["run_a", "run_c"], rounds=(5, 10)))
    return read_runs(paths)


def faces(heights: np.ndarray) -> np.ndarray:
    """Mean heights of the cells of a grid."""
    return (heights[:-1, :-1] + heights[1:, :-1] + heights[:-1, 1:] + heights[1:, 1:]) / 4


def test_every_run_is_a_panel_with_its_last_round_on_shared_heights(compared: Collection) -> None:
    (drawn,) = FIGURE.draw(compared.runs, compared)
    first, second, bar = drawn.canvas.axes
    lowest = [f"{np.nanmin(surface.loss_of(run)):.2g}" for run in ("run_a", "run_c")]
    titles = [f"FedAvg, lowest loss {lowest[0]}", f"FedSAM, lowest loss {lowest[1]}"]  # the baseline comes first
    assert [axes.get_title() for axes in (first, second)] == titles
    assert [axes.get_gid() for axes in (first, second)] == ["runs:run_a", "runs:run_c"]
    assert first.zaxis.get_gid() == "runs:run_a"
    assert first.get_zlim() == second.get_zlim()
    heights = np.log10(surface.loss_of("run_a"))  # 0.15 to 6.5: more than a decade and a half
    np.testing.assert_allclose(first.collections[0].get_array().ravel(), faces(heights).ravel())
    assert first.get_xlim()[1] > 2 * first.get_ylim()[1] - 0.1  # x to 1, y to 0.5
    ticks = dict(zip(first.get_zticks(), [text.get_text() for text in first.get_zticklabels()], strict=True))
    assert ticks[0.0] == "1"  # heights are logarithms, labels are losses
    assert bar.get_ylabel() == "training loss (log scale)"
    for axes in (first, second):
        assert "filter-normalised" in axes.get_xlabel()
        assert axes.get_zlabel() == "loss"


def test_losses_stand_at_their_places(compared: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    given, draw = [], Axes3D.plot_surface

    def spy(axes: Axes3D, x: np.ndarray, y: np.ndarray, z: np.ndarray, **look: Any) -> Any:
        given.append((x, y, z))
        return draw(axes, x, y, z, **look)

    monkeypatch.setattr(Axes3D, "plot_surface", spy)
    FIGURE.draw(compared.runs, compared)
    x, y, z = given[0]
    np.testing.assert_allclose(z, np.log10(4 + x + 3 * y))


def test_infinite_losses_are_clipped_and_missing_ones_are_holes(compared: Collection) -> None:
    (drawn,) = FIGURE.draw(compared.runs, compared)
    assert "clipped for display above 7" in drawn.caption
    assert "no loss could be computed" in drawn.caption
    rows = {(row["run"], row["x"], row["y"]): row for row in drawn.rows}
    assert len(drawn.rows) == 2 * 25
    assert rows["run_a", -0.5, 0.25]["loss"] == rows["run_a", -0.5, 0.25]["drawn"] == 4.25
    assert (rows["run_c", 1.0, 0.5]["loss"], rows["run_c", 1.0, 0.5]["drawn"]) == (np.inf, 7.0)
    values = drawn.canvas.axes[1].collections[0].get_array().ravel()
    known = np.log10(surface.loss_of("run_c"))[[0, 1, 1], [1, 0, 1]]
    assert values[0] == pytest.approx(known.mean())  # the missing corner is cut off, not made up
    assert drawn.canvas.axes[2].get_yticklabels()[-1].get_text() == "> 7"


def test_the_page_gets_surfaces_to_turn_that_belong_to_runs(compared: Collection) -> None:
    (drawn,) = FIGURE.draw(compared.runs, compared)
    assert drawn.interactive is not None
    json.dumps(drawn.interactive, allow_nan=False)
    first, second = drawn.interactive["data"]
    assert [one["meta"]["run"] for one in (first, second)] == ["run_a", "run_c"]
    np.testing.assert_allclose(first["z"], surface.loss_of("run_a").T)  # rows along y
    np.testing.assert_allclose(first["surfacecolor"], np.log10(surface.loss_of("run_a").T), rtol=1e-4)
    assert second["z"][0][0] is None
    scene = drawn.interactive["layout"]["scene"]
    assert scene["zaxis"]["type"] == "log"
    assert scene["zaxis"]["title"]["text"] == "training loss"
    bar = drawn.interactive["layout"]["coloraxis"]["colorbar"]
    at = dict(zip(bar["ticktext"], bar["tickvals"], strict=True))
    assert at["1"] == 0.0


def test_a_run_that_was_analysed_alone_is_drawn_from_its_own_file(tmp_path: Path) -> None:
    path = make_run(tmp_path / "moved", "fedgloss")
    write_answer(path, surface.stored(["run_a"], axes="eigen"))
    found = read_runs([path])
    (drawn,) = FIGURE.draw(found.runs, found)
    axes = drawn.canvas.axes[0]
    assert axes.get_xlabel() == "along eigenvector 1 (weight distance)"
    np.testing.assert_allclose(axes.collections[0].get_array().ravel(), faces(surface.loss_of("run_a")).ravel())
    assert axes.get_gid() == "runs:moved"


def test_a_run_without_a_single_number_says_so(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / name, name) for name in ("fedavg", "fedsam")]
    stored = surface.stored(["fedavg", "fedsam"])
    stored.data["loss"].loc[{"model": stored.data["model_run"].values == "fedsam"}] = np.nan
    write_answer(tmp_path, stored)
    found = read_runs(paths)
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [text.get_text() for text in drawn.canvas.axes[1].texts] == ["no data"]
    assert not drawn.canvas.axes[0].texts


def test_with_very_many_runs_one_seed_stands_for_a_method(tmp_path: Path) -> None:
    names = [f"{method}_{seed}" for method in ("fedavg", "fedsam") for seed in range(7)]
    paths = [make_run(tmp_path / name, name.partition("_")[0], seed=int(name[-1])) for name in names]
    write_answer(tmp_path, surface.stored(names))
    found = read_runs(paths)
    (few,) = FIGURE.draw(found.runs[:9], found)
    assert few.canvas.axes[0].get_title() == "FedAvg, seed 0"
    assert len({row["run"] for row in few.rows}) == 9
    (many,) = FIGURE.draw(found.runs, found)
    assert {row["run"] for row in many.rows} == {"fedavg_0", "fedsam_0"}
