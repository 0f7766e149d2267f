"""Accuracy against flatness: stored numbers as points, the rank correlation above them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from reports.figures.flatness import FIGURE, _correlate
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results import curvature
from tests.reports.results.answers import write_answer
from tests.reports.results.seeds_and_settings import varied
from training.storage import metrics

USED = ("curvature", "local_global", "sharpness", "training")  # what this figure shows


def test_points_are_runs(collection: Collection) -> None:
    (drawn,) = FIGURE.draw(collection.runs, collection)
    panels = {axes.get_xlabel(): axes for axes in drawn.canvas.axes}
    first, second = panels["λ₁ of the global model"], panels["λ₁ of local models, everyone's data"]
    assert [axes.get_ylabel() for axes in drawn.canvas.axes] == ["test accuracy (%)"] * len(panels)
    points = {
        line.get_gid(): (line.get_xdata()[0], line.get_ydata()[0]) for line in first.get_lines() if line.get_gid()
    }
    assert points["runs:run_a"] == pytest.approx((30.0, 20.0))  # last round; mean of 10, 20 and 30 %
    assert points["runs:run_b"] == pytest.approx((15.0, 10.0))
    assert points["runs:run_c"] == pytest.approx((24.0, 16.0))  # of the server's model: its eigenvalue was measured
    assert first.get_title() == "n = 3: correlation not computed"  # too few
    points = [line.get_xdata()[0] for line in second.get_lines() if line.get_gid()]
    assert points == pytest.approx([35.0, 17.5, 28.0])  # mean over the clients of the last round


def test_accuracy_is_of_the_model_whose_flatness_was_measured(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedasam", swa=True, scale=0.8, studies=USED)
    other = make_run(tmp_path / "other", "fedavg", studies=USED)
    answer = curvature.stored(0.8)
    answer.settings["model"] = "final"
    write_answer(run, answer)
    found = read_runs([run, other])
    (drawn,) = FIGURE.draw(found.runs, found)
    accuracy = {row["measure"]: row["accuracy"] for row in drawn.rows if row["run"] == "run"}
    assert accuracy["lambda_1"] == pytest.approx(90.0)  # of the average
    assert accuracy["everyone"] == pytest.approx(16.0)  # of the server's model, from which clients started


def test_the_correlation_is_spearmans(tmp_path: Path) -> None:
    scales = (1.0, 0.3, 0.5, 0.9, 0.7)
    runs = [
        make_run(tmp_path / f"run{place}", "fedavg", seed=place, scale=scale, studies=USED)
        for place, scale in enumerate(scales)
    ]
    records = metrics.read(runs[1])
    (runs[0] / "metrics.jsonl").unlink()
    for record in records:  # worse than the second in two of three rounds
        metrics.append(runs[0], json.loads(json.dumps(record).replace("0.03", "0.01")))
    found = read_runs(runs)
    (drawn,) = FIGURE.draw(found.runs, found)
    rows = [row for row in drawn.rows if row["measure"] == "lambda_1"]
    expected = spearmanr([row["flatness"] for row in rows], [row["accuracy"] for row in rows])
    assert rows[0]["spearman"] == pytest.approx(expected.statistic)
    assert rows[0]["p"] == pytest.approx(expected.pvalue)
    assert -1 < rows[0]["spearman"] < 1


def test_partitions_differ_by_fill_and_two_runs_have_no_correlation(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, "fedavg", scale=0.5, studies=USED) for name in ("even", "skewed")]
    varied(runs[0], partition_alpha=100.0)
    found = read_runs(runs)
    (drawn,) = FIGURE.draw(found.runs, found)
    axes = drawn.canvas.axes[0]
    assert [line.get_fillstyle() for line in axes.get_lines() if line.get_gid()] == ["full", "none"]
    assert axes.get_title() == "n = 2: correlation not computed"
    names = [text.get_text() for text in drawn.canvas.legends[0].get_texts()]
    assert names == ["FedAvg", "Dirichlet α = 100", "Dirichlet α = 0.5"]


def test_partitions_are_not_pooled() -> None:
    """Within each partition accuracy falls with sharpness, though all points together rise."""
    x, y = np.array([1.0, 2.0, 3.0, 11.0, 12.0, 13.0]), np.array([3.0, 2.0, 1.0, 13.0, 12.0, 11.0])
    assert spearmanr(x, y).statistic > 0
    correlation, chance = _correlate(x, y, ["even"] * 3 + ["skewed"] * 3)
    assert correlation == pytest.approx(-1)
    assert chance == pytest.approx(0, abs=1e-6)
    pooled = _correlate(x, np.array([1.0, 3.0, 2.0, 6.0, 4.0, 5.0]), ["one"] * 6)
    expected = spearmanr(x, [1, 3, 2, 6, 4, 5])
    assert pooled == pytest.approx((expected.statistic, expected.pvalue))
