"""Bars, sweeps, corruptions, layers and spectra: what is drawn is what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from reports.inputs.progress import CROSS
from reports.inputs.runs import Run
from reports.panels.corruptions import tell_origin
from reports.quantities.catalog import ACCURACY, Quantity
from tests.reports.panels.made_up import diverge, draw, list_legend, make_run
from tests.reports.results import curvature, sensitivity

ROUNDS = Quantity("rounds", "rounds", lambda run, _: float(len(run.metrics)), decimals=0)
GAIN = Quantity("gain", "gain (points)", lambda run, other: 0.0 if other is None else 100 * run.seed - other.seed)


def test_bars_are_means_over_seeds_with_their_spread() -> None:
    series = {"FedAvg": [make_run("a"), make_run("b", seed=1, scale=0.5)], "FedSAM": [make_run("c", "fedsam")]}
    drawn = draw("bars", series)
    axes = drawn.canvas.axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([26.25, 35])  # last two rounds: 35 and 17.5
    assert [row["mean"] for row in drawn.rows] == pytest.approx([26.25, 35])
    assert drawn.rows[0]["spread"] == pytest.approx(np.std([35, 17.5], ddof=1))
    assert [text.get_text() for text in axes.get_xticklabels()] == ["FedAvg", "FedSAM"]
    assert [text.get_text() for text in axes.texts] == ["26.25", "35.00"]
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylabel() == "test accuracy (%)"


def test_pairs_stand_in_groups_with_the_gain_written_on_them() -> None:
    series = {"without": [make_run("a")], "with": [make_run("b", "fedfsa", scale=1.2)]}
    drawn = draw("bars", series, groups={"without": "FedAvg", "with": "FedAvg"}, gain=True)
    axes = drawn.canvas.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["FedAvg"]
    assert [text.get_text() for text in axes.texts] == ["35.00", "+7.00"]
    left, right = axes.patches
    assert left.get_x() + left.get_width() < right.get_x() + 0.05
    assert drawn.rows[1]["gain"] == pytest.approx(7)
    assert list_legend(drawn) == ["without", "with"]
    many = draw("bars", {f"m{number}": [make_run(f"r{number}", f"m{number}")] for number in range(10)})
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in many.canvas.axes[0].patches}
    assert len(looks) == 10
    assert list_legend(many) == []  # the axis has the names


def test_a_diverged_bar_is_a_cross_and_an_unfinished_one_is_open() -> None:
    series = {"A": [diverge(make_run("a"))], "B": [make_run("b", state="unfinished")], "C": [], "D": [make_run("d")]}
    drawn = draw("bars", series)
    axes = drawn.canvas.axes[0]
    assert [text.get_text() for text in axes.texts][:2] == [CROSS, "not run"]
    assert [bar.get_facecolor()[3] for bar in axes.patches] == [0, 1]
    assert [row["series"] for row in drawn.rows] == ["B", "D"]
    assert [text for text in list_legend(drawn) if ":" in text] == [
        "A: diverged in round 3",
        "B: unfinished: 2 of 10 rounds",
        "C: not run",
    ]


def test_a_quantity_may_compare_with_the_reference_of_the_same_seed() -> None:
    series = {"base": [make_run("a", seed=3), make_run("b", seed=5)], "other": [make_run("c", seed=5)]}
    drawn = draw("bars", series, quantity=GAIN, reference="base")
    assert [row["mean"] for row in drawn.rows] == [np.mean([297, 495]), 495]


def make_sweep(values: tuple[float, ...], name: str, scale: float = 1.0) -> dict[str, list[Run]]:
    def make(value: float, seed: int) -> Run:
        settings = {"local": {"lr": value}}
        return make_run(f"{name}{value}{seed}", name, seed=seed, scale=scale * (value + seed), settings=settings)

    return {f"{name} {value:g}": [make(value, seed) for seed in (0, 1)] for value in values}


def test_a_sweep_has_a_line_per_group_and_levels_for_series_without_the_setting() -> None:
    series = make_sweep((0.5, 0.1), "fedsol") | make_sweep((0.1, 0.5, 1.0), "fedgloss", 0.5)
    series["FedAvg"] = [make_run("x")]
    groups = {name: name.split()[0] for name in series if " " in name}
    drawn = draw("sweep", series, groups=groups, x="local.lr", label="rate")
    axes = drawn.canvas.axes[0]
    assert sorted(list_legend(drawn)) == ["FedAvg", "fedgloss", "fedsol"]
    first, second = (bars.lines[0] for bars in axes.containers)
    np.testing.assert_allclose(
        np.float64(first.get_ydata()), [35 * 0.6, 35 * 1.0]
    )  # sorted by the setting; mean over both seeds
    np.testing.assert_allclose(np.float64(second.get_ydata()), [35 * 0.3, 35 * 0.5, 35 * 0.75])
    np.testing.assert_allclose(np.float64(first.get_xdata()), [0, 1], atol=0.07)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.1", "0.5", "1"]
    (level,) = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert level.get_ydata()[0] == pytest.approx(35)
    row = next(row for row in drawn.rows if row["series"] == "fedsol 0.1")
    assert (row["value"], row["mean"], row["seeds"]) == (0.1, pytest.approx(21), 2)
    assert row["spread"] == pytest.approx(np.std([3.5, 38.5], ddof=1))
    assert axes.get_xlabel() == "rate"


def test_a_second_quantity_has_an_axis_of_its_own() -> None:
    drawn = draw("sweep", make_sweep((0.1, 0.5), "fedsol"), x="local.lr", second=ROUNDS)
    left, right = drawn.canvas.axes
    assert right.get_ylabel() == "rounds (dashed)"
    assert {row["quantity"] for row in drawn.rows} == {ACCURACY.name, "rounds"}
    assert left.get_ylabel() == ACCURACY.label


def test_numbers_may_be_spaced_as_numbers() -> None:
    groups = {"fedsol 0.1": "FedSoL", "fedsol 0.5": "FedSoL"}
    drawn = draw("sweep", make_sweep((0.1, 0.5), "fedsol"), groups=groups, x="local.lr", spacing="log")
    axes = drawn.canvas.axes[0]
    assert axes.get_xscale() == "log"
    assert axes.containers[0].lines[0].get_xdata().tolist() == [0.1, 0.5]


def test_corruptions_of_one_severity_are_bars_over_seeds() -> None:
    series = {"FedAvg": [make_run("a"), make_run("b", seed=1, scale=0.5)]}
    drawn = draw("corruptions", series)
    heights = [bar.get_height() for bar in drawn.canvas.axes[0].patches]
    np.testing.assert_allclose(heights, [45, 7.5, np.nan])  # severity 5: 60 and 10, half of them, fog failed
    assert [row["corruption"] for row in drawn.rows] == ["gaussian_noise", "glass_blur", "fog"]
    np.testing.assert_allclose([row["mean"] for row in drawn.rows], heights)
    assert "severity 5" in drawn.caption
    assert "saturate" in drawn.caption
    mean = draw("corruptions", series, severity=None)
    assert mean.rows[0]["mean"] == pytest.approx(52.5)
    assert draw("corruptions", series, severity=3).rows == []


def test_captions_tell_published_corrupted_images_from_those_made_here() -> None:
    data = make_run("a").measured("robustness")
    assert data is not None
    assert tell_origin(data) == "corrupted images were made here, not read from published files"
    some = data.assign_attrs(published="gaussian_noise, fog")
    assert tell_origin(some) == "corrupted images: the published files, but for glass_blur, made here"
    every = data.assign_attrs(published="gaussian_noise, glass_blur, fog")
    assert tell_origin(every) == "corrupted images: the published files"
    assert tell_origin(data) in draw("corruptions", {"FedAvg": [make_run("a")]}).caption


def test_layers_are_means_over_the_participants_of_the_round() -> None:
    drawn = draw("layers", {"FedSoL": [make_run("a", "fedsol")]}, variable="moved")
    heights = [bar.get_height() for bar in drawn.canvas.axes[0].patches]
    np.testing.assert_allclose(heights, sensitivity.MOVED[1:].mean(axis=0))
    assert [row["round"] for row in drawn.rows] == [10, 10, 10]
    assert [text.get_text() for text in drawn.canvas.axes[0].get_xticklabels()] == sensitivity.LAYERS.tolist()
    assert "the point that was sent" in drawn.caption
    whole = draw("layers", {"FedSoL": [make_run("a", "fedsol")]}, variable="moved", joined=True)
    first = (9 * sensitivity.MOVED[1:, 0] + sensitivity.MOVED[1:, 1]) / 10  # conv has 9 weights and 1 bias
    np.testing.assert_allclose([row["mean"] for row in whole.rows], [first.mean(), sensitivity.MOVED[1:, 2].mean()])
    assert [row["layer"] for row in whole.rows] == ["conv", "fc"]
    early = draw("layers", {"FedSoL": [make_run("a")]}, variable="moved", at=0.5)
    np.testing.assert_allclose([row["mean"] for row in early.rows], sensitivity.MOVED[0])


def test_a_spectrum_has_eigenvalues_by_index_and_open_circles_for_unsure_ones() -> None:
    drawn = draw("spectrum", {"FedAvg": [make_run("a")], "FedSAM": [make_run("b", "fedsam", scale=0.5)]}, top=3)
    lines = {line.get_label(): line for line in drawn.canvas.axes[0].get_lines()}
    np.testing.assert_allclose(lines["FedAvg"].get_xydata(), np.stack([[1, 2, 3], curvature.VALUES[-1, :3]], axis=1))
    np.testing.assert_allclose(lines["FedSAM"].get_ydata(), 0.5 * curvature.VALUES[-1, :3])
    assert drawn.canvas.axes[0].get_yscale() == "log"
    every = draw("spectrum", {"FedAvg": [make_run("a")]})
    (open_,) = [line for line in every.canvas.axes[0].get_lines() if line.get_markeredgecolor() != line.get_color()]
    np.testing.assert_allclose(open_.get_xydata(), [[5, 10]])  # the fifth did not converge
    assert "open circles: not converged" in every.caption
