"""Differences are signed, centred at zero, and zero where both losses are equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reports.figures.difference import FIGURE
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results import surface
from tests.reports.results.answers import write_answer

SHAPES = {"base": (1.0, 1.0), "tilted": (1.0, -1.0), "run_c": (1.5, 1.0)}


def read(tmp_path: Path, names: list[str]) -> Collection:
    methods = {"base": "fedavg", "tilted": "fedsam", "run_c": "fedgloss"}
    paths = [make_run(tmp_path / name, methods[name]) for name in names]
    write_answer(tmp_path, surface.stored(names, shapes=SHAPES))
    return read_runs(paths)


def test_zero_is_where_the_losses_are_equal(tmp_path: Path) -> None:
    found = read(tmp_path, ["base", "tilted"])
    (drawn,) = FIGURE.draw(found.runs, found)
    axes = drawn.canvas.axes[0]
    bands, zero = axes.collections
    assert zero.levels.tolist() == [0.0]
    np.testing.assert_allclose(zero.get_paths()[0].vertices[:, 0], 0, atol=1e-9)  # the difference is -2x
    np.testing.assert_allclose(bands.levels, -bands.levels[::-1])
    assert bands.levels[-1] == 2.0
    assert axes.get_title() == "FedSAM minus FedAvg"
    assert axes.get_gid() == "runs:tilted"
    values = {(row["x"], row["y"]): row["difference"] for row in drawn.rows}
    assert values[0.5, 0.25] == -1.0
    low, high = (bands.cmap(bands.norm(value)) for value in (-1.9, 1.9))
    assert low[2] > low[0]  # blue where the method's loss is lower
    assert high[0] > high[2]


def test_every_method_has_a_panel_on_one_scale_and_holes_stay_holes(tmp_path: Path) -> None:
    found = read(tmp_path, ["base", "tilted", "run_c"])
    (drawn,) = FIGURE.draw(found.runs, found)
    first, second, bar = drawn.canvas.axes
    np.testing.assert_array_equal(first.collections[0].levels, second.collections[0].levels)
    assert second.get_title() == "FedGloSS minus FedAvg"
    assert len(second.collections) == 1  # higher everywhere: no line of equal loss
    assert any(np.isnan(row["difference"]) for row in drawn.rows)
    texts = [text.get_text() for text in bar.get_yticklabels()]
    assert texts[-1].startswith("> ")  # an infinite loss
    assert bar.get_ylabel() == "difference of training losses"


def test_nothing_to_compare_is_nothing_to_draw(tmp_path: Path) -> None:
    found = read(tmp_path, ["base"])
    assert FIGURE.draw(found.runs, found) == []
