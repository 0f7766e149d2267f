"""Lines over rounds: means, bands, smoothing, shares, levels, crosses; clients, classes and local models."""

from __future__ import annotations

import numpy as np
import pytest

from reports.figure_type import Drawing
from reports.plotting.over_rounds import find_series, smooth
from tests.reports.panels.made_up import diverge, draw, make_run
from tests.reports.results import forgetting

TWO = {"FedAvg": [make_run("a"), make_run("b", seed=1, scale=0.5)], "FedGloSS": [make_run("c", "fedgloss")]}


def get_line(drawn: Drawing, label: str) -> np.ndarray:
    (line,) = [line for line in drawn.canvas.axes[0].get_lines() if line.get_label() == label]
    return np.asarray(line.get_xydata())


def test_a_line_is_the_mean_over_seeds_and_the_rows_are_what_is_drawn() -> None:
    drawn = draw("curves", TWO)
    np.testing.assert_allclose(get_line(drawn, "FedAvg"), [[1, 7.5], [2, 15], [3, 22.5], [4, 30]])
    rows = [row for row in drawn.rows if row["series"] == "FedAvg"]
    np.testing.assert_allclose([[row["round"], row["mean"]] for row in rows], get_line(drawn, "FedAvg"))
    assert [row["lowest"] for row in rows] == pytest.approx([5, 10, 15, 20])
    (band,) = drawn.canvas.axes[0].collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(40)
    assert drawn.canvas.axes[0].get_ylabel() == "test accuracy (%)"
    assert "mean and range over up to 2 seeds" in drawn.caption


def test_a_moving_mean_takes_a_window_and_says_so() -> None:
    drawn = draw("curves", {"FedGloSS": TWO["FedGloSS"]}, window=3)
    np.testing.assert_allclose(get_line(drawn, "FedGloSS")[:, 1], [10, 15, 20, 30])
    assert "moving mean of 3 evaluated rounds" in drawn.caption
    values = np.random.default_rng(0).normal(size=9)
    plain = [values[max(0, place - 3) : place + 1].mean() for place in range(9)]
    np.testing.assert_allclose(smooth(values, 4), plain)
    np.testing.assert_allclose(smooth(values, 20)[-1], values.mean())


def test_budgets_that_differ_share_an_axis_by_their_share() -> None:
    drawn = draw("curves", {"FedGloSS": TWO["FedGloSS"]}, x="share")
    assert get_line(drawn, "FedGloSS")[:, 0].tolist() == [10, 20, 30, 40]
    assert drawn.canvas.axes[0].get_xlabel() == "share of the training (%)"


def test_a_reference_is_a_dashed_line_at_its_final_accuracy() -> None:
    drawn = draw("curves", {**TWO, "Centralised": [make_run("d", "central", scale=2)]}, dashed=("Centralised",))
    (line,) = [line for line in drawn.canvas.axes[0].get_lines() if line.get_label() == "Centralised"]
    assert line.get_linestyle() == "--"
    assert line.get_ydata()[0] == pytest.approx(70)  # the mean of the last two rounds, 60 and 80
    (row,) = [row for row in drawn.rows if row["series"] == "Centralised"]
    assert row["mean"] == pytest.approx(70)


def test_a_diverged_run_ends_in_a_cross_and_does_not_count() -> None:
    drawn = draw("curves", {"FedAvg": [TWO["FedAvg"][0], diverge(TWO["FedAvg"][1])]})
    np.testing.assert_allclose(get_line(drawn, "FedAvg")[:, 1], [10, 20, 30, 40])
    (cross,) = [line for line in drawn.canvas.axes[0].get_lines() if line.get_marker() == "x"]
    np.testing.assert_allclose(cross.get_xydata(), [[2, 10]])


def test_other_metrics_recorded_numbers_and_variables_of_studies_are_found() -> None:
    norm = draw("curves", {"FedGloSS": TWO["FedGloSS"]}, metric="norm")
    assert get_line(norm, "FedGloSS")[:, 1].tolist() == [10, 100, 1000, 10000]
    assert norm.canvas.axes[0].get_yscale() == "log"
    cosine = draw("curves", {"FedGloSS": TWO["FedGloSS"]}, metric="proximal_cosine")
    np.testing.assert_allclose(get_line(cosine, "FedGloSS")[:, 1], [-0.1, -0.2, -0.3, -0.4])
    distance = draw("curves", {"FedGloSS": TWO["FedGloSS"]}, study="drift", metric="mean_distance")
    np.testing.assert_allclose(get_line(distance, "FedGloSS"), [[5, 0.7], [10, 0.8]])
    assert find_series(TWO["FedGloSS"][0], "drift", "nothing")[0].size == 0


def test_single_series_may_have_another_metric() -> None:
    drawn = draw("curves", TWO, metric_of={"FedGloSS": "norm"})
    np.testing.assert_allclose(get_line(drawn, "FedGloSS")[:, 1], [1e3, 1e4, 1e5, 1e6])  # still in per cent


def test_every_client_has_a_line_and_the_test_set_a_thick_one() -> None:
    drawn = draw("client_curves", {"FedAvg": [make_run("a")]})
    lines = [line for line in drawn.canvas.axes[0].get_lines() if len(line.get_xdata())]
    assert len(lines) == 3  # two clients and the test set
    for line in lines[:2]:
        np.testing.assert_allclose(line.get_xydata(), [[0, 50], [5, 50], [10, 50]])
    np.testing.assert_allclose(lines[2].get_ydata(), [10, 20, 30, 40])
    assert lines[2].get_linewidth() > lines[0].get_linewidth()
    assert len({line.get_color() for line in lines}) == 3
    assert {row["client"] for row in drawn.rows} == {0, 3, "test set"}


def test_every_class_has_a_line_in_the_colour_of_its_series() -> None:
    drawn = draw("class_curves", {"FedAvg": [make_run("a")], "FedGloSS": [make_run("c", "fedgloss", scale=0.5)]})
    lines = drawn.canvas.axes[0].get_lines()
    assert [line.get_label() for line in lines if not line.get_label().startswith("_")] == ["FedAvg", "FedGloSS"]
    first, second, mean = lines[:3]
    np.testing.assert_allclose(first.get_ydata(), 100 * forgetting.ACCURACY[:, 0])
    np.testing.assert_allclose(second.get_xydata(), [[0, 50], [10, 12.5]])  # round 5 is not known of it
    np.testing.assert_allclose(mean.get_ydata(), 100 * np.nanmean(forgetting.ACCURACY, axis=1))
    assert first.get_color() == second.get_color() != lines[3].get_color()
    mine = [row["accuracy"] for row in drawn.rows if row["series"] == "FedAvg" and row["class"] == 0]
    np.testing.assert_allclose(mine, first.get_ydata())


def test_local_models_have_a_band_of_one_standard_deviation_over_clients() -> None:
    drawn = draw("local_accuracy", {"FedAvg": [make_run("a")]})
    (local,) = [
        line for line in drawn.canvas.axes[0].get_lines() if line.get_linestyle() == "--" and len(line.get_xdata())
    ]
    np.testing.assert_allclose(
        local.get_xydata(), [[5, 30]]
    )  # two participants of round 5: 20 and 40; round 10: unknown
    (row,) = [row for row in drawn.rows if row["metric"] == "local"]
    assert (row["mean"], row["spread_over_clients"], row["clients"]) == (pytest.approx(30), pytest.approx(10), 2)
    band = drawn.canvas.axes[0].collections[-1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx(20), pytest.approx(40))
