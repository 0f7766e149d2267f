"""Figures by what is drawn in them: artists hold the stored numbers, axes say what they are."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from reports.catalog import FIGURES
from reports.figure_type import TOPICS, save
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results.seeds_and_settings import varied


@pytest.fixture(scope="module")
def varied_runs(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """Two seeds of one method, another method, and two settings in two values each: every figure has its numbers."""
    folder = tmp_path_factory.mktemp("runs")
    paths = [make_run(folder / "run_a", "fedavg"), make_run(folder / "run_b", "fedavg", seed=1, scale=0.5)]
    for number, (rho, eta) in enumerate(((0.1, 1.0), (0.1, 2.0), (0.2, 1.0), (0.2, 2.0))):
        one = make_run(folder / f"run_{number}", "fedasam", swa=True, scale=0.6 + 0.1 * number)
        paths.append(varied(one, algorithm_rho=rho, algorithm_eta=eta))
    return read_runs(paths)


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_is_drawn_labelled_and_saved(name: str, varied_runs: Collection, tmp_path: Path) -> None:
    figure = FIGURES[name]
    assert figure.topic in TOPICS
    assert figure.reading.endswith(".")
    drawn = figure.draw(varied_runs.runs, varied_runs)
    assert drawn
    assert len({one.suffix for one in drawn}) == len(drawn)
    for one in drawn:
        assert one.caption
        for axes in one.canvas.axes:
            if axes.get_label() == "<colorbar>":
                assert axes.get_ylabel() or axes.get_xlabel()
                continue
            if not axes.axison:  # a place left empty
                continue
            unwritten = not any(tick.get_text() for tick in axes.get_xticklabels())  # the panel below says it for both
            assert axes.get_xlabel() or unwritten
            assert axes.get_ylabel()
        paths = save(one, tmp_path / "figures", name)
        assert [path.suffix for path in paths] == [".png", ".pdf", ".svg", ".csv"]
        assert all(path.stat().st_size > 1000 for path in paths[:3])
        with open(paths[-1], newline="") as file:
            assert len(list(csv.DictReader(file))) == len(one.rows) > 0


@pytest.mark.parametrize("name", [name for name, figure in FIGURES.items() if figure.needs])
def test_without_its_study_a_figure_is_not_drawn(name: str, tmp_path: Path) -> None:
    bare = read_runs([make_run(tmp_path / "run", "fedavg", studies=())])
    assert FIGURES[name].draw(bare.runs, bare) == []


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_numbers_give_the_same_bytes(kind: str, collection: Collection, tmp_path: Path) -> None:
    contents = []
    for folder in ("one", "two"):
        (drawn,) = FIGURES["accuracy"].draw(collection.runs, collection)
        contents.append(save(drawn, tmp_path / folder, "a", [kind])[0].read_bytes())
    assert contents[0] == contents[1]


def test_accuracy_is_a_mean_with_a_band_over_seeds(collection: Collection) -> None:
    (drawn,) = FIGURES["accuracy"].draw(collection.runs, collection)
    left, right = drawn.canvas.axes
    lines = {line.get_label(): line for line in left.get_lines()}
    np.testing.assert_allclose(lines["FedAvg"].get_ydata(), [7.5, 15.0, 22.5])  # percent, mean of seeds 0 and 1
    np.testing.assert_allclose(lines["FedASAM + SWA"].get_ydata(), [8.0, 16.0, 90.0])  # averaged once there is one
    band = left.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(5.0)
    assert band[:, 1].max() == pytest.approx(30.0)
    np.testing.assert_allclose(right.get_lines()[0].get_ydata(), [2.0, 1.0, 2 / 3])


def test_eigenvalues_come_with_bars_and_doubt(collection: Collection) -> None:
    (drawn,) = FIGURES["eigenvalues"].draw(collection.runs, collection)
    (axes,) = drawn.canvas.axes
    points, _, (bars,) = axes.containers[0].lines
    np.testing.assert_allclose(points.get_ydata(), [1.0, 40.0, 30.0])
    low, high = bars.get_segments()[1][:, 1]
    assert (low, high) == (pytest.approx(39.6), pytest.approx(40.4))
    white = [line for line in axes.get_lines() if line.get_color() == "white"]
    assert white[0].get_xdata().tolist() == [5]  # the one that did not converge
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["FedAvg", "FedASAM + SWA"]


def test_dumbbells_join_what_a_client_and_what_everyone_sees(collection: Collection) -> None:
    (drawn,) = FIGURES["local_global"].draw(collection.runs, collection)
    axes = drawn.canvas.axes[0]
    own, everyone = axes.get_lines()[0], axes.get_lines()[1]
    np.testing.assert_allclose(own.get_xdata(), [3.0, 2.0])  # of the last round alone, sorted by the other end
    np.testing.assert_allclose(everyone.get_xdata(), [30.0, 40.0])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1", "3"]
    assert axes.get_lines()[2].get_xdata()[0] == 12.0
    segments = axes.collections[0].get_segments()
    np.testing.assert_allclose(segments[0][:, 0], [3.0, 30.0])


def test_lines_between_models_mark_their_barrier(collection: Collection) -> None:
    drawn = FIGURES["interpolation"].draw(collection.runs, collection)
    assert [one.suffix for one in drawn] == ["", "_1", "_2"]
    loss, error = drawn[0].canvas.axes
    x = np.linspace(-1, 2, 7)
    np.testing.assert_allclose(loss.get_lines()[0].get_ydata(), 1 + x**2)
    np.testing.assert_allclose(error.get_lines()[1].get_ydata(), (2 + x**2) / 10)
    assert [text.get_text() for text in loss.texts] == ["0.25"]
    assert drawn[0].canvas.legends[0].get_texts()[0].get_text() == "round 5 to round 10"
